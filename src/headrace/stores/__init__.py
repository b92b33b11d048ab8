"""Where a pipeline keeps what must outlive it: table states, schemas, progress, copies, destination metadata."""

from .contract import LeasedStore, PipelineStore, SchemaStore, StateStore, TableStateLifecycleStore
from .copies import CopyStore
from .memory import MemoryStore
from .postgres import PostgresStore
from .records import (
    APPLY,
    CopyBounds,
    CopyRecord,
    CopyStart,
    DestinationTableMetadata,
    Heartbeat,
    SchemaStatus,
    SchemaVersion,
    StateEntry,
    Worker,
)
from .requests import RequestKind, RequestStore, TableRequest
from .sqlite import SqliteStore

__all__ = [
    "APPLY",
    "CopyBounds",
    "CopyRecord",
    "CopyStart",
    "CopyStore",
    "DestinationTableMetadata",
    "Heartbeat",
    "LeasedStore",
    "MemoryStore",
    "PipelineStore",
    "PostgresStore",
    "RequestKind",
    "RequestStore",
    "SchemaStatus",
    "SchemaStore",
    "SchemaVersion",
    "SqliteStore",
    "StateEntry",
    "StateStore",
    "TableRequest",
    "TableStateLifecycleStore",
    "Worker",
]
