"""A pipeline: from a publication to a destination.

Importing this package loads nothing but itself: commands that only observe a pipeline must not load Spark.
"""

from importlib import import_module

# As `typing` has it, without its import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .pipeline import Pipeline
    from .status import PipelineState, PipelineStatus, TableStatus

__all__ = ["Pipeline", "PipelineState", "PipelineStatus", "TableStatus"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{'pipeline' if name == 'Pipeline' else 'status'}"), name)
