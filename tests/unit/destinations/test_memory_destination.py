from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headrace.destinations.memory import MemoryDestination
from headrace.errors import ProtocolError, TableNotFound
from headrace.events import Begin, Commit, Event, Insert
from headrace.lsn import Lsn
from headrace.schema import ReplicatedTableSchema, ReplicationMask
from headrace.testing.example_tables import ORDERS, VISITS, example_table
from headrace.testing.local_rows import Altered, Happening, Inserted, Updated, batch_of, local_rows, transaction


def order(key: int) -> dict[str, object]:
    return {"id": key, "name": "a", "note": None}


def filled(*rows: int) -> MemoryDestination:
    destination = MemoryDestination()
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(i) for i in rows]), 0)
    return destination


def write(destination: MemoryDestination, *happenings: Happening, at: int = 100) -> Sequence[Event]:
    events = transaction(Lsn(at), *happenings)
    destination.write_events(batch_of(events, end=Lsn(at + 10)))
    return events


def test_it_keeps_the_events_as_they_came() -> None:
    destination = filled()
    first = write(destination, Inserted(ORDERS, order(1)))
    second = write(destination, Inserted(VISITS, {"page": "a", "seconds": 1}), at=50)
    assert destination.events() == [*first, *second]
    assert [type(event) for event in first] == [Begin, Insert, Commit]


def test_only_the_part_of_a_batch_that_is_new_is_applied() -> None:
    destination = filled()
    old = write(destination, Inserted(ORDERS, order(1)))
    new = transaction(Lsn(150), Inserted(ORDERS, order(2)))
    destination.write_events(batch_of(old, new, end=Lsn(200)))
    assert destination.events() == [*old, *new]
    assert destination.rows("public.orders")["id"].to_pylist() == [1, 2]
    assert destination.applied_lsn(ORDERS) == Lsn(200)


def test_the_applied_lsn_never_goes_back() -> None:
    destination = filled()
    write(destination, Inserted(ORDERS, order(1)), at=100)
    write(destination, Inserted(ORDERS, order(2)), at=50)
    assert destination.applied_lsn(ORDERS) == Lsn(110)
    assert destination.rows(ORDERS.table.name)["id"].to_pylist() == [1]


def test_a_table_of_which_only_changes_came() -> None:
    destination = MemoryDestination()
    assert destination.applied_lsn(ORDERS) is None
    write(destination, Inserted(ORDERS, order(1)))
    assert destination.rows("public.orders").to_pylist() == [order(1)]
    assert destination.tables() == [ORDERS.table.name]


def test_a_change_whose_row_is_not_certain_is_refused() -> None:
    """As of a key with a generated column, which is not sent before Postgres 18."""
    destination = filled(1)
    omitted = without(ORDERS, ORDERS.table.key[0].attnum)
    changed = Updated(omitted, {"name": "b", "note": None})
    with pytest.raises(ProtocolError, match="without its old row"):
        write(destination, changed)
    assert destination.rows("public.orders").to_pylist() == [order(1)]


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(TableNotFound, match=r"public\.nothing"):
        filled().rows("public.nothing")


def test_rows_can_be_looked_at_between_batches() -> None:
    destination = filled(1)
    for i in range(2, 5):
        write(destination, Inserted(ORDERS, order(i)), at=i * 100)
        assert destination.rows("public.orders")["id"].to_pylist() == list(range(1, i + 1))


def without(schema: ReplicatedTableSchema, attnum: int) -> ReplicatedTableSchema:
    return replace(schema, mask=ReplicationMask(schema.mask.attnums - {attnum}))


def test_columns_are_renamed_dropped_and_added() -> None:
    changed = example_table(
        ORDERS.table.id, "orders", {"id": "int8", "title": "text", "x": "text", "n": "int4"}, ("id",)
    )
    new = without(changed, 3)
    destination = filled(1)
    write(destination, Altered(ORDERS, new), Inserted(new, {"id": 2, "title": "b", "n": 7}))
    assert destination.rows("public.orders").to_pylist() == [
        {"id": 1, "title": "a", "n": None},
        {"id": 2, "title": "b", "n": 7},
    ]
