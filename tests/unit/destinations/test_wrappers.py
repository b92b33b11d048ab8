"""Retrying, Instrumented and Translated, around a destination that is made to fail."""

from __future__ import annotations

import concurrent.futures
import errno
import threading
from collections.abc import Callable

import pytest

from headrace.destinations.contract import Destination, DestinationContext, Durability
from headrace.destinations.instrumented import DestinationCall, Instrumented
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.retrying import Retrying
from headrace.destinations.stdout import StdoutDestination
from headrace.destinations.translated import Translated
from headrace.errors import (
    DestinationConflict,
    DestinationConnectionFailed,
    DestinationError,
    DestinationRejected,
    DestinationTimeout,
    RetryPolicy,
)
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS, VISITS
from headrace.testing.faulty_destination import FaultyDestination
from headrace.testing.local_rows import Inserted, batch_of, local_rows, transaction

BATCH = batch_of(transaction(Lsn(100), Inserted(ORDERS, {"id": 1})), end=Lsn(200))
CALLS: dict[str, Callable[[Destination], object]] = {
    "startup": lambda d: d.startup(DestinationContext(1, MemoryStore(), None)),
    "claim": lambda d: d.claim(),
    "applied_lsn": lambda d: d.applied_lsn(ORDERS),
    "copied_parts": lambda d: d.copied_parts(ORDERS),
    "drop_table_for_copy": lambda d: d.drop_table_for_copy(ORDERS),
    "write_table_rows": lambda d: d.write_table_rows(ORDERS, local_rows(ORDERS, [{"id": 1}]), 0),
    "write_events": lambda d: d.write_events(BATCH),
    "flush": lambda d: d.flush(),
    "shutdown": lambda d: d.shutdown(),
}
TABLELESS = {"startup", "claim", "flush", "shutdown"}


class Failing:
    """Raises these errors, one per call, and then none any more."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls: list[tuple[str, str | None]] = []

    def __call__(self, method: str, table: str | None) -> None:
        self.calls.append((method, table))
        if self.errors:
            raise self.errors.pop(0)


@pytest.mark.parametrize(
    "wrap",
    [
        Retrying,
        lambda d: Instrumented(d, lambda call: None),
        Translated,
        lambda d: FaultyDestination(d, lambda method, table: None),
    ],
)
def test_calls_and_answers_pass_through(wrap: Callable[[Destination], Destination]) -> None:
    log = Failing()
    inner = MemoryDestination()
    destination = wrap(FaultyDestination(inner, log))
    for call in CALLS.values():
        call(destination)
    assert [method for method, _ in log.calls] == list(CALLS)
    assert destination.write_table_rows(VISITS, local_rows(VISITS, []), 0) is Durability.DURABLE
    assert destination.write_events(BATCH) is Durability.DURABLE
    assert destination.applied_lsn(ORDERS) == Lsn(200)
    assert destination.copied_parts(ORDERS) == {0}
    assert (destination.name, destination.whole_batches) == ("memory", False)
    assert wrap(StdoutDestination()).whole_batches


@pytest.mark.parametrize("error", [DestinationConflict("x"), DestinationConnectionFailed("x"), DestinationTimeout("x")])
def test_what_passes_is_tried_again(error: DestinationError) -> None:
    fail = Failing(error, error)
    destination = Retrying(FaultyDestination(MemoryDestination(), fail), attempts=3, delay_s=0)
    assert destination.write_events(BATCH) is Durability.DURABLE
    assert fail.calls == [("write_events", "public.orders")] * 3


def test_the_last_try_raises() -> None:
    fail = Failing(*[DestinationConflict(f"try {i}") for i in range(4)])
    with pytest.raises(DestinationConflict, match="try 2"):
        Retrying(FaultyDestination(MemoryDestination(), fail), attempts=3, delay_s=0).write_events(BATCH)


@pytest.mark.parametrize(
    "error",
    [DestinationError("x"), DestinationRejected("x"), OSError("x"), DestinationConflict("x", retry=RetryPolicy.MANUAL)],
)
def test_what_does_not_pass_is_raised_at_once(error: Exception) -> None:
    fail = Failing(error)
    with pytest.raises(type(error)):
        Retrying(FaultyDestination(MemoryDestination(), fail), delay_s=0).write_events(BATCH)
    assert len(fail.calls) == 1


def test_a_copy_is_not_tried_again() -> None:
    fail = Failing(DestinationTimeout("x"))
    destination = Retrying(FaultyDestination(MemoryDestination(), fail), delay_s=0)
    with pytest.raises(DestinationTimeout):
        CALLS["write_table_rows"](destination)


class Waits(threading.Event):
    """Does not wait, and notes for how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return self.is_set()


def test_the_delay_doubles_up_to_its_limit() -> None:
    waits = Waits()
    fail = Failing(*[DestinationConflict("x")] * 6)
    Retrying(FaultyDestination(MemoryDestination(), fail), 7, 0.5, waits).flush()
    assert waits.seconds == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_stopping_ends_the_waiting() -> None:
    stopping = threading.Event()
    stopping.set()
    fail = Failing(DestinationConflict("x"), DestinationConflict("never seen"))
    with pytest.raises(DestinationConflict, match="x"):
        Retrying(FaultyDestination(MemoryDestination(), fail), 5, 3600, stopping).flush()


def test_at_least_one_attempt() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Retrying(MemoryDestination(), attempts=0)


def test_calls_are_observed() -> None:
    seen: list[DestinationCall] = []
    ticks = iter(range(100))
    destination = Instrumented(MemoryDestination(), seen.append, lambda: next(ticks))
    for call in CALLS.values():
        call(destination)
    assert seen == [
        DestinationCall("memory", method, None if method in TABLELESS else ORDERS.table.name, 1, None)
        for method in CALLS
    ]


@pytest.mark.parametrize(
    ("error", "kind"), [(DestinationConflict("x"), "destination_conflict"), (KeyError(), "unknown")]
)
def test_errors_are_observed(error: Exception, kind: str) -> None:
    seen: list[DestinationCall] = []
    destination = Instrumented(FaultyDestination(MemoryDestination(), Failing(error)), seen.append)
    with pytest.raises(type(error)):
        destination.write_events(BATCH)
    assert [call.error for call in seen] == [kind]


def test_a_batch_of_several_tables_is_of_no_table() -> None:
    seen: list[DestinationCall] = []
    happened = (Inserted(ORDERS, {"id": 1}), Inserted(VISITS, {"page": "a"}))
    Instrumented(MemoryDestination(), seen.append).write_events(batch_of(transaction(Lsn(1), *happened), end=Lsn(2)))
    assert seen[0].table is None


@pytest.mark.parametrize("method", CALLS)
def test_foreign_errors_become_ours(method: str) -> None:
    destination = Translated(FaultyDestination(MemoryDestination(), Failing(ValueError("secret value"))))
    with pytest.raises(DestinationError, match=f"memory failed in {method}") as caught:
        CALLS[method](destination)
    assert type(caught.value) is DestinationError
    assert caught.value.retry is RetryPolicy.TIMED
    assert "ValueError at test_wrappers.py:" in str(caught.value)
    assert ("public.orders" in str(caught.value)) == (method not in TABLELESS)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), DestinationConnectionFailed),
        (OSError(errno.EHOSTUNREACH, "no route"), DestinationConnectionFailed),
        (TimeoutError(), DestinationTimeout),
        (concurrent.futures.TimeoutError(), DestinationTimeout),
        (OSError(errno.ENOSPC, "disk full"), DestinationError),
        (PermissionError(errno.EACCES, "denied"), DestinationError),
    ],
)
def test_errors_of_the_system(error: Exception, expected: type[DestinationError]) -> None:
    destination = Translated(FaultyDestination(MemoryDestination(), Failing(error)))
    with pytest.raises(DestinationError) as caught:
        destination.flush()
    assert type(caught.value) is expected
    assert str(error) in str(caught.value)


def test_our_errors_stay_as_they_are() -> None:
    error = DestinationRejected("no such type")
    with pytest.raises(DestinationRejected) as caught:
        Translated(FaultyDestination(MemoryDestination(), Failing(error))).flush()
    assert caught.value is error


def test_a_faulty_destination_is_asked_for_every_table() -> None:
    fail = Failing()
    happened = (Inserted(ORDERS, {"id": 1}), Inserted(VISITS, {"page": "a"}))
    inner = MemoryDestination()
    faulty = FaultyDestination(inner, fail)
    faulty.write_events(batch_of(transaction(Lsn(1), *happened), end=Lsn(2)))
    assert fail.calls == [("write_events", "public.orders"), ("write_events", "public.visits")]
    fail.errors = [DestinationError("down")]
    with pytest.raises(DestinationError, match="down"):
        faulty.drop_table_for_copy(ORDERS)
    assert inner.rows("public.orders").num_rows == 1
