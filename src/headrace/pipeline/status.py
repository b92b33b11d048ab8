"""What a pipeline says of itself: frozen values, for a live view, a script or a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..lsn import INVALID_LSN, Lsn
from ..replication import ReceiverStatus
from ..table_state import TableState
from .copy_progress import CopyView

__all__ = ["PipelineState", "PipelineStatus", "TableStatus"]


class PipelineState(str, Enum):
    """Where a pipeline is in its life."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table: its state, up to where it is durable, how far its copy is."""

    name: str
    state: TableState
    position: Lsn
    copy: CopyView
    attempts: int = 0
    """Failures in a row."""
    changes: int = 0
    """Changes applied in this life of the pipeline, before folding."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The whole pipeline at one moment. `tables` is by name, as schema.table."""

    state: PipelineState
    tables: Mapping[str, TableStatus] = field(default_factory=dict)
    applied: Lsn = INVALID_LSN
    """Up to where all tables in step are durable."""
    receiver: ReceiverStatus = field(default_factory=lambda: ReceiverStatus("new"))
    lag_bytes: int | None = None
    """WAL on the source behind `applied`, as of the last look; None before the first."""
    lag_seconds: float | None = None
    """How long ago the oldest change was published to the spool that is not applied; 0 when there is none."""
    memory_used_ratio: float = 0.0
    memory_short: bool = False
    """Whether reading pauses for want of memory."""
    spool_bytes: int | None = None
    """Bytes of segments in the spool, as of the last look; None before the first."""
