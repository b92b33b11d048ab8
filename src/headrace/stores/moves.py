"""Which moves a store accepts: those of `table_state`, seen by someone who is not told of the states in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import IllegalTransition, RollbackImpossible
from ..table_state import PERSISTED, TRANSITIONS, State, TableState, advance

__all__ = ["INIT", "is_move", "previous_state", "require_known"]

INIT = TableState(State.INIT)


def _next_persisted(state: State, seen: frozenset[State] = frozenset()) -> frozenset[State]:
    """The persisted states reachable without passing another persisted one."""
    to = TRANSITIONS[state]
    beyond = [_next_persisted(passing, seen | {state}) for passing in to - PERSISTED - seen]
    return (to & PERSISTED).union(*beyond)


# FinishedCopy is followed by SyncDone, an Errored that fails again by another Errored: Catchup stood in between.
_FOLLOWERS = {state: _next_persisted(state) for state in PERSISTED}


def is_move(current: TableState | None, to: TableState) -> bool:
    """Whether `to` is news: False for the state the table has.

    Raises IllegalTransition where no way leads, and ValueError for a state that lives in memory only.
    """
    if to.state not in PERSISTED:
        msg = f"{to.state.value} lives in memory and is not stored"
        raise ValueError(msg)
    if current == to:
        return False
    if current is None:
        if to.state is not State.INIT:
            raise IllegalTransition("nothing", to.state.value)
    elif to.state not in _FOLLOWERS[current.state]:
        advance(current, to)
    return True


def require_known(table_id: int, current: TableState | None) -> None:
    if current is None:
        msg = f"table {table_id} has no state to roll back"
        raise RollbackImpossible(msg, hint="check the table's OID: the pipeline has never seen it")


def previous_state(table_id: int, history: Sequence[TableState]) -> TableState:
    """The state before the current one. Nothing is taken back across Init: what stood before it may be gone."""
    require_known(table_id, history[-1] if history else None)
    if history[-1].state is State.INIT or len(history) == 1:
        msg = f"table {table_id} cannot be rolled back from {history[-1].state.value}: no earlier state is known"
        raise RollbackImpossible(msg)
    return history[-2]
