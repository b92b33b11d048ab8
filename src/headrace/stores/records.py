"""What a store keeps besides table states: frozen values, free of any connection, picklable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from ..lsn import Lsn
from ..schema import ReplicatedTableSchema, ReplicationMask
from ..schema_policy import Target
from ..table_state import TableState

__all__ = [
    "APPLY",
    "ENDED_STATES",
    "SILENT_AFTER_S",
    "CopyBounds",
    "CopyRecord",
    "CopyStart",
    "DestinationTableMetadata",
    "Heartbeat",
    "SchemaStatus",
    "SchemaVersion",
    "StateEntry",
    "Worker",
]


@dataclass(frozen=True, slots=True)
class Worker:
    """Whose progress it is: the apply loop's (no table), or that of the table sync of one table."""

    table_id: int | None = None

    def __post_init__(self) -> None:
        if self.table_id is not None and self.table_id <= 0:
            msg = f"a table's OID is a positive number, not {self.table_id}"
            raise ValueError(msg)


APPLY = Worker()
"""The apply loop, which serves all tables that are Ready."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A table as the publication showed it from `snapshot_lsn` on, until the next version."""

    snapshot_lsn: Lsn
    schema: ReplicatedTableSchema
    target: Target | None = None
    """What the destination's table was made to be for it, by the policy of that time; None: the same."""

    @property
    def table_id(self) -> int:
        return self.schema.table.id


@dataclass(frozen=True, slots=True)
class StateEntry:
    """A state in a table's history, and when (UTC) it was entered."""

    state: TableState
    entered_at: datetime


class SchemaStatus(StrEnum):
    """Whether the destination is being altered to a schema version, or has it."""

    APPLYING = "applying"
    APPLIED = "applied"


@dataclass(frozen=True, slots=True)
class DestinationTableMetadata:
    """What stands at the destination for a source table.

    While `status` is Applying, the destination may be anywhere between `previous_snapshot_lsn` (None: it did not exist)
    and `snapshot_lsn`; whoever finds it so after a crash finishes the change first.
    """

    destination_table_id: str
    snapshot_lsn: Lsn
    mask: ReplicationMask
    status: SchemaStatus = SchemaStatus.APPLYING
    previous_snapshot_lsn: Lsn | None = None

    def applied(self) -> DestinationTableMetadata:
        """The change is done."""
        return replace(self, status=SchemaStatus.APPLIED)

    def applying(self, snapshot_lsn: Lsn, mask: ReplicationMask) -> DestinationTableMetadata:
        """The destination is about to be altered from here to another version; also after a change was cut short."""
        settled = self.status is SchemaStatus.APPLIED
        return replace(
            self,
            snapshot_lsn=snapshot_lsn,
            mask=mask,
            status=SchemaStatus.APPLYING,
            previous_snapshot_lsn=self.snapshot_lsn if settled else self.previous_snapshot_lsn,
        )


SILENT_AFTER_S = 30.0
"""A pipeline reports every five seconds. One that has not for so long hangs, or is gone."""
ENDED_STATES = ("stopped", "failed")
"""States of heartbeats after which no other follows, until the next start."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a running pipeline last reported about itself, so that other processes can tell whether it is well."""

    written_at: datetime
    """When (UTC) it was written; one that is old was left by a process that froze or was killed."""
    host: str
    pid: int
    state: str
    """`running`; `stopped` after an orderly end, `failed` after an error; of several destinations also other states."""
    receiver: str
    """The state of the receiver, as `ReceiverStatus.state`."""
    receiver_silent_s: float
    """Seconds since the receiver process last reported."""
    applied: Lsn
    """Up to where all tables in step are durable, which progress may lag behind while nothing is written."""
    problem: str | None = None
    """What holds up the pipeline or the destination, or what ended it."""
    hint: str | None = None
    receiver_pid: int | None = None
    """None: there is no receiver, or an older version wrote this."""

    def silent_s(self, now: datetime) -> float:
        """Return the seconds since it was written."""
        return (now - self.written_at).total_seconds()

    def is_alive(self, now: datetime) -> bool:
        """Whether the process that wrote it still runs, as far as its reports show."""
        return self.state not in ENDED_STATES and self.silent_s(now) < SILENT_AFTER_S


@dataclass(frozen=True, slots=True)
class CopyBounds:
    """Keys from `lower` on, before `upper`, in Postgres's text of the key's type; None is open."""

    column: str
    type: str
    lower: str | None = None
    upper: str | None = None


@dataclass(frozen=True, slots=True)
class CopyStart:
    """How a table's initial copy was begun: what a resumed copy and the hand-off to the stream must agree with."""

    start_lsn: Lsn
    """Where catch-up begins in the spool: no change that a snapshot of this copy does not show lies before it."""
    snapshot_lsn: Lsn
    """Not before the end of WAL when the latest snapshot was taken: the table is of one moment from here on only."""
    one_snapshot: bool
    """True: all rows are of one snapshot, and a copy cut short starts over. False: each range has its own."""
    ranges: tuple[CopyBounds | None, ...] = (None,)
    """The plan, in order. None is the whole table."""


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """A part of a table's copy that is durable at the destination; under one snapshot, the only one."""

    position: int
    """In `CopyStart.ranges`."""
    bounds: CopyBounds | None
    """None is the whole table."""
    snapshot: str
    """The text of `pg_current_snapshot()` that the rows were read under."""
    rows: int
