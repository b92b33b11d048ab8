"""What a pipeline says of itself: frozen values, for a live view, a script or a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..lsn import INVALID_LSN, Lsn
from ..replication import ReceiverStatus
from ..table_state import TableState
from .copy_progress import CopyView

__all__ = ["DestinationState", "DestinationStatus", "PipelineState", "PipelineStatus", "TableStatus"]


class PipelineState(StrEnum):
    """Where a pipeline is in its life."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """Its publication was dropped: until it is there again, with tables."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class DestinationState(StrEnum):
    """Where one of several destinations is: it fails and starts again apart from the others."""

    OPENING = "opening"
    RUNNING = "running"
    WAITING = "waiting"
    """It failed, and starts again by itself."""
    FAILED = "failed"
    """It failed, and waits for an operator and the next start of the pipeline."""
    STOPPED = "stopped"


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
    destination: str = ""
    """Its destination's name, where there are several."""

    @property
    def key(self) -> str:
        """By which a pipeline's status has it."""
        return f"{self.destination}/{self.name}" if self.destination else self.name


@dataclass(frozen=True, slots=True)
class DestinationStatus:
    """One of several destinations at one moment. `tables` is by name, as schema.table."""

    name: str
    state: DestinationState
    tables: Mapping[str, TableStatus] = field(default_factory=dict)
    applied: Lsn = INVALID_LSN
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    error: str | None = None
    """What it failed with last, until it runs again."""
    hint: str | None = None
    attempts: int = 0
    """Failures in a row."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The whole pipeline at one moment.

    `tables` is by name, as schema.table; with several destinations as destination/schema.table, and `applied` and the
    lags are those of the destination that is furthest behind.
    """

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
    destinations: Mapping[str, DestinationStatus] = field(default_factory=dict)
    """By name, where the pipeline has several."""
