"""moves: what a store accepts, given that it never hears of SyncWait and Catchup."""

from __future__ import annotations

import pytest

from headrace.errors import IllegalTransition, RetryPolicy, RollbackImpossible
from headrace.lsn import Lsn
from headrace.stores.moves import is_move, previous_state
from headrace.table_state import PERSISTED, State, TableState

# Those of the drawn table, and those with states in memory between them.
LEGAL = {
    State.INIT: {State.DATA_SYNC, State.ERRORED},
    State.DATA_SYNC: {State.FINISHED_COPY, State.ERRORED, State.INIT},
    State.FINISHED_COPY: {State.SYNC_DONE, State.ERRORED, State.INIT},
    State.SYNC_DONE: {State.READY, State.ERRORED, State.INIT},
    State.READY: {State.ERRORED, State.INIT},
    State.ERRORED: {State.INIT, State.DATA_SYNC, State.SYNC_DONE, State.ERRORED},
}


def make(state: State, mark: str = "a") -> TableState:
    if state is State.ERRORED:
        return TableState(state, reason=mark, retry_policy=RetryPolicy.TIMED)
    return TableState(state, lsn=Lsn(1) if state is State.SYNC_DONE else None)


def accepts(current: State, to: State) -> bool:
    try:
        return is_move(make(current), make(to, "b"))
    except IllegalTransition:
        return False


def test_the_moves_between_persisted_states() -> None:
    assert {state: {to for to in PERSISTED if accepts(state, to)} for state in PERSISTED} == LEGAL


def test_the_same_state_is_no_move() -> None:
    assert [is_move(make(state), make(state)) for state in PERSISTED] == [False] * len(PERSISTED)


def test_sync_done_at_another_lsn_is_a_move_and_an_illegal_one() -> None:
    with pytest.raises(IllegalTransition):
        is_move(make(State.SYNC_DONE), TableState(State.SYNC_DONE, lsn=Lsn(2)))


def test_a_life_begins_with_init() -> None:
    assert is_move(None, make(State.INIT))
    with pytest.raises(IllegalTransition, match="nothing"):
        is_move(None, make(State.READY))


def test_a_state_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="sync_wait"):
        is_move(make(State.FINISHED_COPY), TableState(State.SYNC_WAIT))


def test_the_previous_state() -> None:
    init, data_sync = make(State.INIT), make(State.DATA_SYNC)
    assert previous_state(7, [init, data_sync]) == init
    for history in ([], [init], [data_sync], [data_sync, init]):
        with pytest.raises(RollbackImpossible, match="table 7"):
            previous_state(7, history)
