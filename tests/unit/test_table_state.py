"""table_state: every pair of states, legal or not, and what a state must carry."""

from __future__ import annotations

import itertools
import pickle

import pytest

from headrace.errors import IllegalTransition, RetryPolicy
from headrace.lsn import Lsn
from headrace.table_state import PERSISTED, TRANSITIONS, State, TableState, advance

# Written out a second time on purpose: a change of the table must be meant.
LEGAL = {
    "init": {"data_sync", "errored"},
    "data_sync": {"finished_copy", "errored", "init"},
    "finished_copy": {"sync_wait", "errored", "init"},
    "sync_wait": {"catchup", "errored", "init"},
    "catchup": {"sync_done", "errored", "init"},
    "sync_done": {"ready", "errored", "init"},
    "ready": {"errored", "init"},
    "errored": {"init", "data_sync", "catchup"},
}


def state(kind: State) -> TableState:
    if kind is State.ERRORED:
        return TableState(kind, reason="it broke", solution="mend it", retry_policy=RetryPolicy.TIMED)
    return TableState(kind, lsn=Lsn(16) if kind in (State.CATCHUP, State.SYNC_DONE) else None)


@pytest.mark.parametrize(("current", "to"), list(itertools.product(State, State)), ids=lambda s: s.value)
def test_every_pair(current: State, to: State) -> None:
    before = state(current)
    if to.value in LEGAL[current.value]:
        assert advance(before, state(to)) == state(to)
    else:
        with pytest.raises(IllegalTransition, match=f"from {current.value} to {to.value}"):
            advance(before, state(to))
        assert before == state(current)


def test_no_state_leads_to_itself_and_each_can_be_left() -> None:
    assert TRANSITIONS.keys() == set(State)
    assert all(moves and current not in moves for current, moves in TRANSITIONS.items())


def test_every_state_is_reached_from_init_and_leads_to_ready() -> None:
    def reachable(start: State) -> set[State]:
        seen, todo = {start}, [start]
        while todo:
            new = TRANSITIONS[todo.pop()] - seen
            seen |= new
            todo += new
        return seen

    assert reachable(State.INIT) == set(State)
    assert all(State.READY in reachable(start) for start in State)


def test_what_lives_in_memory_only() -> None:
    assert set(State) - PERSISTED == {State.SYNC_WAIT, State.CATCHUP}


@pytest.mark.parametrize("kind", list(State))
def test_a_state_carries_what_belongs_to_it_and_nothing_else(kind: State) -> None:
    good = state(kind)
    assert pickle.loads(pickle.dumps(good)) == good
    with pytest.raises(ValueError, match="LSN"):
        TableState(kind, None if good.lsn else Lsn(1), good.reason, good.solution, good.retry_policy)
    other = (None, None, None) if kind is State.ERRORED else ("reason", None, RetryPolicy.MANUAL)
    with pytest.raises(ValueError, match="belong to Errored"):
        TableState(kind, good.lsn, *other)
    with pytest.raises(TypeError):
        TRANSITIONS[kind] = frozenset()  # type: ignore[index]
