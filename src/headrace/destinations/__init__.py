"""Where rows and events go: the contract, what destinations share, and the built-in ones."""

from .batch import Changes, EventBatch, Step, TableBatch
from .contract import Destination, DestinationContext, Durability, SourceIdentity
from .fold import fold_key, folded, folded_schema
from .memory import MemoryDestination
from .null import NullDestination
from .rows import Rows
from .stdout import StdoutDestination

__all__ = [
    "Changes",
    "Destination",
    "DestinationContext",
    "Durability",
    "EventBatch",
    "MemoryDestination",
    "NullDestination",
    "Rows",
    "SourceIdentity",
    "StdoutDestination",
    "Step",
    "TableBatch",
    "fold_key",
    "folded",
    "folded_schema",
]
