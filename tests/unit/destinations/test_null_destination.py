from __future__ import annotations

import pytest

from headrace.destinations.null import NullCounts, NullDestination
from headrace.events import Event
from headrace.lsn import Lsn
from headrace.testing.example_tables import ORDERS, VISITS
from headrace.testing.local_rows import Inserted, LocalRows, Truncated, batch_of, local_rows, transaction


def batch() -> tuple[Event, ...]:
    return transaction(
        Lsn(100), Inserted(ORDERS, {"id": 1}), Truncated((ORDERS, VISITS)), *[Inserted(VISITS, {"page": "a"})] * 3
    )


def test_everything_is_counted() -> None:
    destination = NullDestination()
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [{"id": i} for i in range(2_500)]), 0)
    destination.write_events(batch_of(batch(), end=Lsn(200)))
    assert destination.counts("public.orders") == NullCounts(copied_rows=2_500, changes=1, truncates=1)
    assert destination.counts(VISITS.table.name) == NullCounts(copied_rows=0, changes=3, truncates=1)


def test_it_reads_in_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_here(rows: LocalRows) -> None:
        pytest.fail("rows were brought to the driver")

    table = local_rows(ORDERS, [{"id": 1}])
    monkeypatch.setattr(LocalRows, "in_tasks", lambda rows, write: [write(iter(table.table.to_batches()))] * 3)
    monkeypatch.setattr(LocalRows, "batches", not_here)
    destination = NullDestination()
    destination.write_table_rows(ORDERS, table, 0)
    assert destination.counts("public.orders").copied_rows == 3


def test_the_applied_lsn_goes_forward_until_the_table_is_dropped() -> None:
    destination = NullDestination()
    assert destination.applied_lsn(ORDERS) is None
    for end in (200, 150):
        destination.write_events(batch_of(batch(), end=Lsn(end)))
        assert destination.applied_lsn(ORDERS) == Lsn(200)
    destination.drop_table_for_copy(ORDERS)
    assert destination.applied_lsn(ORDERS) is None
    assert destination.counts("public.orders") == NullCounts(0, 0, 0)
    assert destination.applied_lsn(VISITS) == Lsn(200)
