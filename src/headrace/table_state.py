"""The life of one table, from its discovery to steady streaming.

The words are those of Postgres's own table synchronisation (`tablesync.c`), and so is the order:

    Init -> DataSync -> FinishedCopy -> SyncWait -> Catchup -> SyncDone -> Ready

Who moves a table, and what each state promises:

* **Init** - the pipeline found the table in the publication. Nothing is at the destination.
* **DataSync** - table sync copies it; snapshot and finished ranges are recorded, so a restart knows what to keep.
* **FinishedCopy** - the copy is durable at the destination. Changes newer than the snapshot are not.
* **SyncWait** - table sync waits for the apply loop to name the LSN at which it will take over.
* **Catchup** - table sync applies the table's own changes from the spool up to that LSN. The apply loop does not wait.
* **SyncDone** - caught up to `lsn`. The apply loop takes the table into its batches from there.
* **Ready** - part of every batch.
* **Errored** - out of the batch with its position kept; the other tables go on. It comes back through Catchup when its
  rows are at the destination, through Init when they are not.

SyncWait and Catchup live in memory: after a restart a table found in FinishedCopy enters them again, because its
changes are still in the spool. Everything else is persisted before anyone acts on it.

This file is the only place that knows which moves are legal. An illegal one raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from .errors import IllegalTransition, RetryPolicy
from .lsn import Lsn

__all__ = ["PERSISTED", "TRANSITIONS", "State", "TableState", "advance"]


class State(StrEnum):
    """The states of a table; see the module's text for what each promises."""

    INIT = "init"
    DATA_SYNC = "data_sync"
    FINISHED_COPY = "finished_copy"
    SYNC_WAIT = "sync_wait"
    CATCHUP = "catchup"
    SYNC_DONE = "sync_done"
    READY = "ready"
    ERRORED = "errored"


PERSISTED = frozenset(State) - {State.SYNC_WAIT, State.CATCHUP}

TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        # A skipped copy (table_sync_copy) still passes through DataSync: the empty table is created there.
        State.INIT: frozenset({State.DATA_SYNC, State.ERRORED}),
        # Back to Init: the copy cannot be resumed (its snapshot is gone) and starts over.
        State.DATA_SYNC: frozenset({State.FINISHED_COPY, State.ERRORED, State.INIT}),
        State.FINISHED_COPY: frozenset({State.SYNC_WAIT, State.ERRORED, State.INIT}),
        State.SYNC_WAIT: frozenset({State.CATCHUP, State.ERRORED, State.INIT}),
        State.CATCHUP: frozenset({State.SYNC_DONE, State.ERRORED, State.INIT}),
        State.SYNC_DONE: frozenset({State.READY, State.ERRORED, State.INIT}),
        # Init from Ready: a resync asked for by the operator, or a recreated slot.
        State.READY: frozenset({State.ERRORED, State.INIT}),
        # DataSync: a timed retry of a copy that keeps its finished ranges.
        State.ERRORED: frozenset({State.INIT, State.DATA_SYNC, State.CATCHUP}),
    }
)

_NEEDS_LSN = frozenset({State.CATCHUP, State.SYNC_DONE})


@dataclass(frozen=True, slots=True)
class TableState:
    """A state with what it carries: an LSN (Catchup, SyncDone) or the reason, remedy and retry rule (Errored)."""

    state: State
    lsn: Lsn | None = None
    reason: str | None = None
    solution: str | None = None
    retry_policy: RetryPolicy | None = None

    def __post_init__(self) -> None:
        if (self.lsn is not None) != (self.state in _NEEDS_LSN):
            msg = f"state {self.state.value} {'needs' if self.lsn is None else 'has no'} LSN"
            raise ValueError(msg)
        errored = self.state is State.ERRORED
        if errored != (self.reason is not None) or errored != (self.retry_policy is not None):
            msg = "reason and retry policy belong to Errored, and only there"
            raise ValueError(msg)


def advance(current: TableState, to: TableState) -> TableState:
    """Return `to` if the move is legal, else raise IllegalTransition and leave everything as it was."""
    if to.state not in TRANSITIONS[current.state]:
        raise IllegalTransition(current.state.value, to.state.value)
    return to
