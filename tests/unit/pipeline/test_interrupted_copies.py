"""What a pipeline knows of a copy that was interrupted before it has a worker for it again."""

from __future__ import annotations

import pytest

from headrace.destinations.memory import MemoryDestination
from headrace.initial_copy.ranges import CopyPlan, CopyRange, KeyBounds
from headrace.lsn import INVALID_LSN, Lsn
from headrace.pipeline.copy_records import has_all_parts, is_of_copy, part_number, ranges_left
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


# Ranges 0 and 1 were written as one part, range 2 as another; range 3 was begun, range 4 abandoned.
SNAPSHOTS, ROWS = ("1:1:", "1:1:", "5:5:", "9:9:", "9:9:"), (10, 0, 7, -1, -2)
RECORDS = [CopyRecord(n, None, SNAPSHOTS[n], ROWS[n]) for n in range(5)]
FIRST, SECOND, BEGUN = (part_number(some) for some in (RECORDS[:2], RECORDS[2:3], RECORDS[3:4]))


def test_a_destination_that_was_put_back_lacks_a_finished_part() -> None:
    assert has_all_parts(RECORDS, frozenset({FIRST, SECOND}))
    assert has_all_parts(RECORDS, frozenset({FIRST, SECOND, BEGUN}))
    assert not has_all_parts(RECORDS, frozenset({FIRST}))
    assert not has_all_parts(RECORDS, frozenset())
    assert has_all_parts([], frozenset())


def test_a_part_of_another_copy_is_known_by_its_number() -> None:
    assert is_of_copy(RECORDS, frozenset({FIRST, SECOND, BEGUN}))
    assert is_of_copy(RECORDS, frozenset())
    other = part_number([CopyRecord(0, None, "2:2:", 10)])
    assert not is_of_copy(RECORDS, frozenset({FIRST, other}))
    assert not is_of_copy([], frozenset({FIRST}))
    # Earlier versions counted the parts of each copy from 0.
    assert not is_of_copy(RECORDS, frozenset({0}))
    assert is_of_copy(RECORDS, frozenset({0}), accept_old_numbers=True)
    assert not is_of_copy(RECORDS, frozenset({0, other}), accept_old_numbers=True)
