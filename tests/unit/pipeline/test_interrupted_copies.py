"""What a pipeline knows of a copy that was interrupted before it has a worker for it again."""

from __future__ import annotations

import pytest

from headrace.destinations.memory import MemoryDestination
from headrace.initial_copy.ranges import CopyPlan, CopyRange, KeyBounds
from headrace.lsn import INVALID_LSN, Lsn
from headrace.pipeline.copy_records import has_all_parts, ranges_left
from headrace.pipeline.tables import Tables
from headrace.stores import MemoryStore
from headrace.stores.records import CopyBounds, CopyRecord, CopyStart
from headrace.table_state import State, TableState
from headrace.testing.store_suite import example_schema

START = Lsn(500)
BOUNDS = (CopyBounds("id", "int8", None, "10"), CopyBounds("id", "int8", "10", None))


@pytest.mark.parametrize(("one_snapshot", "position"), [(False, START), (True, INVALID_LSN)])
def test_the_spool_is_held_for_a_copy_that_goes_on(one_snapshot: bool, position: Lsn) -> None:
    schema, store = example_schema(1), MemoryStore()
    for state in (State.INIT, State.DATA_SYNC):
        store.update_table_states({1: TableState(state)})
    store.begin_copy(1, CopyStart(START, START, one_snapshot, (None,) if one_snapshot else BOUNDS))
    tables = Tables(store)
    tables.load([schema], MemoryDestination())
    assert [table.position for table in tables.all()] == [position]


def test_what_is_left_is_cut_as_it_was_and_read_as_it_would_be_now() -> None:
    schema = example_schema(1)
    whole = CopyRange(schema.table.name, ("id",), "id > 3", KeyBounds("id", "int8"), True, 100, 4000)
    start = CopyStart(START, START, one_snapshot=False, ranges=BOUNDS)
    done = [CopyRecord(0, BOUNDS[0], "1:1:", 5)]
    left = ranges_left(CopyPlan(schema, (whole,), one_snapshot=False), start, done)
    cut = KeyBounds("id", "int8", "10", None)
    assert left == [(1, CopyRange(schema.table.name, ("id",), "id > 3", cut, True, 50, 2000))]


def test_a_destination_that_was_put_back_lacks_a_finished_part() -> None:
    """Ranges 0 and 1 are part 0, range 2 is part 2; range 3 was begun, range 4 abandoned."""
    snapshots = ("1:1:", "1:1:", "5:5:", "9:9:", "9:9:")
    rows = (10, 0, 7, -1, -2)
    records = [CopyRecord(n, None, snapshots[n], rows[n]) for n in range(5)]
    assert has_all_parts(records, frozenset({0, 2}))
    assert has_all_parts(records, frozenset({0, 2, 3}))
    assert not has_all_parts(records, frozenset({0}))
    assert not has_all_parts(records, frozenset())
    assert has_all_parts([], frozenset())
