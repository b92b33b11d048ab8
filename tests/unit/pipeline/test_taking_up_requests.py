"""pipeline.requests: what is asked in the store is done once, withdrawn when done, and dropped when it cannot be."""

from __future__ import annotations

import pytest

from headrace.errors import StoreIoError
from headrace.pipeline import requests
from headrace.pipeline.requests import Requests
from headrace.pipeline.tables import Tables
from headrace.stores import MemoryStore, RequestKind, TableRequest
from headrace.table_state import State, TableState
from headrace.testing.store_suite import ERRORED, TO_READY, A, example_schema, follow

RESYNC = TableRequest(RequestKind.RESYNC, A)
TO_INIT = TableRequest(RequestKind.ROLLBACK_TO_INIT, A)
ROLLBACK = TableRequest(RequestKind.ROLLBACK, A)


class Asked:
    """A store with table A in a state, loaded; every `look` is due."""

    def __init__(self, *states: TableState) -> None:
        self.store = MemoryStore()
        follow(self.store, A, *states)
        self.tables = Tables(self.store)
        self.tables.load([example_schema(A)], Nothing())  # type: ignore[arg-type]
        (self.table,) = self.tables.all()
        self.requests = Requests(self.store, self.tables)

    def look(self) -> list[TableRequest]:
        self.requests.look()
        return self.store.get_requests()


class Nothing:
    """A destination that has applied nothing."""

    def applied_lsn(self, _: object) -> None:
        return None

    def copied_parts(self, _: object) -> None:
        return None


@pytest.fixture(autouse=True)
def always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_INTERVAL_S", 0)


@pytest.mark.parametrize("request_", [RESYNC, TO_INIT])
def test_a_table_starts_over_and_the_request_stays_until_it_has(request_: TableRequest) -> None:
    it = Asked(*TO_READY)
    it.store.ask(request_)
    assert it.look() == [request_]
    assert it.table.resync_asked
    assert it.look() == [request_]
    # When whoever schedules the tables has started it over
    it.tables.start_over(it.table)
    assert it.look() == []
    assert it.store.get_table_state(A) == TableState(State.INIT)
    assert not it.table.resync_asked


def test_a_request_outlives_the_process_that_had_not_done_it() -> None:
    it = Asked(*TO_READY)
    it.store.ask(RESYNC)
    it.look()
    next_life = Requests(it.store, it.tables)
    it.table.resync_asked = False
    next_life.look()
    assert it.table.resync_asked


def test_a_failed_table_is_rolled_back_at_once() -> None:
    it = Asked(*TO_READY, ERRORED)
    it.store.ask(ROLLBACK)
    assert it.look() == []
    assert it.table.state.state is State.READY
    assert it.store.get_table_state(A) == it.table.state


def test_a_table_that_has_not_failed_stays_as_it_is() -> None:
    it = Asked(*TO_READY)
    it.store.ask(ROLLBACK)
    assert it.look() == []
    assert (it.table.state.state, it.table.resync_asked) == (State.READY, False)


def test_a_table_that_is_not_there_is_dropped_from_the_requests() -> None:
    it = Asked(*TO_READY)
    it.store.ask(TableRequest(RequestKind.RESYNC, A + 1))
    assert it.look() == []


def test_the_store_is_asked_at_intervals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_INTERVAL_S", 3600)
    it = Asked(*TO_READY)
    it.requests.look()
    it.store.ask(RESYNC)
    assert it.look() == [RESYNC]
    assert not it.table.resync_asked


def test_an_outage_of_the_store_keeps_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Asked(*TO_READY, ERRORED)
    it.store.ask(ROLLBACK)

    def away(_: int) -> TableState:
        raise StoreIoError("away")

    with monkeypatch.context() as outage:
        outage.setattr(it.store, "rollback_table_state", away)
        with pytest.raises(StoreIoError):
            it.look()
    assert it.store.get_requests() == [ROLLBACK]
    assert it.look() == []
    assert it.table.state.state is State.READY
