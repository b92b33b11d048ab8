"""The spool: raw WAL between Postgres and Spark, in self-contained Arrow segments.

Listing a spool does not load Arrow; reading and writing its segments does.
"""

from importlib import import_module

from .listing import Segment
from .name import SegmentName
from .spool import Spool, SpoolPosition

# As `typing` has it, without its import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .segment import SegmentIndex, TableIndex, relation_digest

__all__ = ["Segment", "SegmentIndex", "SegmentName", "Spool", "SpoolPosition", "TableIndex", "relation_digest"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.segment"), name)
