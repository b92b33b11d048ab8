"""What a destination sees: the changes of a publication, in commit order.

`(commit_lsn, tx_ordinal)` orders and identifies an event everywhere. The ordinal counts the changes of a transaction
from 0 (inserts, updates, deletes, truncates and logical messages; Begin and Relation do not count, because Postgres
repeats Relation messages after a reconnect and the identity of a change must survive that).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntFlag, StrEnum

from .lsn import Lsn
from .schema import ReplicatedTableSchema

__all__ = [
    "UNCHANGED",
    "Begin",
    "Commit",
    "Delete",
    "Event",
    "Insert",
    "OldRowKind",
    "Relation",
    "Row",
    "Truncate",
    "TruncateOptions",
    "Unchanged",
    "Update",
]


class Unchanged(Enum):
    """The third state of a value, next to NULL and a value: a TOASTed value that the UPDATE did not touch.

    Postgres does not send it; it is never NULL and never a placeholder text.
    """

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged.UNCHANGED

Row = Mapping[str, object]
"""Column name to Python value, None for NULL, UNCHANGED for a TOASTed value that was not sent."""


class OldRowKind(StrEnum):
    """How much of the old row Postgres sent."""

    KEY = "K"
    FULL = "O"


class TruncateOptions(IntFlag):
    """pgoutput's option bits of a TRUNCATE."""

    CASCADE = 1
    RESTART_IDENTITY = 2


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction starts; all its events follow, then its Commit."""

    start_lsn: Lsn
    commit_lsn: Lsn
    xid: int
    commit_time: datetime


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction is complete; progress may move to `end_lsn`."""

    commit_lsn: Lsn
    end_lsn: Lsn
    xid: int
    commit_time: datetime


@dataclass(frozen=True, slots=True)
class Insert:
    start_lsn: Lsn
    commit_lsn: Lsn
    tx_ordinal: int
    xid: int
    commit_time: datetime
    schema: ReplicatedTableSchema
    row: Row


@dataclass(frozen=True, slots=True)
class Update:
    """`old` is None unless the identity changed (KEY) or the table is REPLICA IDENTITY FULL (FULL)."""

    start_lsn: Lsn
    commit_lsn: Lsn
    tx_ordinal: int
    xid: int
    commit_time: datetime
    schema: ReplicatedTableSchema
    row: Row
    old: Row | None
    old_kind: OldRowKind | None


@dataclass(frozen=True, slots=True)
class Delete:
    start_lsn: Lsn
    commit_lsn: Lsn
    tx_ordinal: int
    xid: int
    commit_time: datetime
    schema: ReplicatedTableSchema
    old: Row
    old_kind: OldRowKind


@dataclass(frozen=True, slots=True)
class Truncate:
    """One TRUNCATE statement; it empties each of `schemas`."""

    start_lsn: Lsn
    commit_lsn: Lsn
    tx_ordinal: int
    xid: int
    commit_time: datetime
    schemas: tuple[ReplicatedTableSchema, ...]
    options: TruncateOptions


@dataclass(frozen=True, slots=True)
class Relation:
    """The table looks different from here on. `old` is None the first time a table is seen."""

    start_lsn: Lsn
    commit_lsn: Lsn
    old: ReplicatedTableSchema | None
    new: ReplicatedTableSchema
    rewritten: bool = False
    """Rows that existed have other values than before, and no row event tells which."""


Event = Begin | Commit | Insert | Update | Delete | Truncate | Relation
