"""Where a pipeline keeps what must outlive it: table states, schema versions, progress, destination metadata."""

from .contract import PipelineStore, SchemaStore, StateStore, TableStateLifecycleStore
from .memory import MemoryStore
from .postgres import PostgresStore
from .records import APPLY, DestinationTableMetadata, SchemaStatus, SchemaVersion, StateEntry, Worker
from .sqlite import SqliteStore

__all__ = [
    "APPLY",
    "DestinationTableMetadata",
    "MemoryStore",
    "PipelineStore",
    "PostgresStore",
    "SchemaStatus",
    "SchemaStore",
    "SchemaVersion",
    "SqliteStore",
    "StateEntry",
    "StateStore",
    "TableStateLifecycleStore",
    "Worker",
]
