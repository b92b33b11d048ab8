"""A batch: what happened to tables between two commit boundaries, per table as ordered steps, or as plain events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..events import Event, Relation, Truncate
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema
from .rows import Rows

__all__ = ["Changes", "EventBatch", "Step", "TableBatch"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Inserts, updates and deletes of one schema version, in commit order.

    The columns of `rows` are those of `pgoutput.changes`: op, commit_lsn, tx_ordinal, xid, commit_time, start_lsn,
    unchanged, old_kind, and the structs `row` and `old`. `fold.folded` makes one change per key of them.
    """

    schema: ReplicatedTableSchema
    rows: Rows


Step = Changes | Relation | Truncate


@dataclass(frozen=True, slots=True)
class TableBatch:
    """One table's part of a batch: all its changes with `start` <= commit LSN < the batch's end."""

    schema: ReplicatedTableSchema
    start: Lsn
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Everything before `end` that the tables had not applied yet. Whole transactions only."""

    end: Lsn
    tables: tuple[TableBatch, ...]
    read_events: Callable[[], Iterator[Event]]
    unrecorded: set[int] = field(default_factory=set)
    """The destination puts the ids of tables here for which it committed nothing, because their steps come to nothing:
    its record of them stands where it stood, not at `end`."""

    def events(self) -> Iterator[Event]:
        """The batch's events in commit order, between Begin and Commit of their transactions.

        Read in the driver, row by row: for destinations that want single rows. Transactions that have nothing for the
        batch's tables are left out.
        """
        return self.read_events()
