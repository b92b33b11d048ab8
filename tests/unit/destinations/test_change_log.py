"""destinations.change_log: copied rows, changes and truncates as rows of a log."""

from __future__ import annotations

import pyarrow as pa

from headrace.destinations.change_log import (
    change_log_schema,
    logged_changes,
    logged_copy,
    logged_copy_again,
    logged_truncate,
    position_of_copy,
)
from headrace.events import UNCHANGED, Truncate
from headrace.lsn import INVALID_LSN, Lsn
from headrace.testing.example_tables import ORDERS
from headrace.testing.local_rows import (
    Deleted,
    Inserted,
    Truncated,
    Updated,
    arrow_schema_of,
    batch_of,
    local_rows,
    transaction,
)

LOG = change_log_schema(arrow_schema_of(ORDERS))


def test_copied_rows_have_no_place() -> None:
    (batch,) = local_rows(ORDERS, [{"id": 1, "name": "a", "note": None}]).batches()
    (row,) = logged_copy(batch, LOG, INVALID_LSN).to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "_headrace_op": "R", "id": 1, "name": "a", "_headrace_schema_version": 0,
    }  # fmt: skip


def test_a_copy_that_is_not_the_first_has_its_place_behind_a_row_that_empties_the_table() -> None:
    (batch,) = local_rows(ORDERS, [{"id": 1, "name": "a", "note": None}]).batches()
    (emptied,) = logged_copy_again(LOG, Lsn(99)).to_pylist()
    (row,) = logged_copy(batch, LOG, Lsn(99)).to_pylist()
    place = {"_headrace_commit_lsn": 99, "_headrace_schema_version": 99}
    assert {name: value for name, value in emptied.items() if value is not None} == {
        "_headrace_op": "T", "_headrace_tx_ordinal": 0, **place
    }  # fmt: skip
    assert {name: value for name, value in row.items() if value is not None} == {
        "_headrace_op": "R", "_headrace_tx_ordinal": 1, "id": 1, "name": "a", **place
    }  # fmt: skip


def test_a_copy_is_behind_all_that_a_log_has() -> None:
    assert position_of_copy(Lsn(100), INVALID_LSN) == 99
    assert position_of_copy(None, INVALID_LSN) == 1
    assert position_of_copy(None, Lsn(99)) == position_of_copy(Lsn(100), Lsn(99)) == 100


def test_changes_keep_what_was_sent() -> None:
    events = transaction(
        Lsn(100),
        Inserted(ORDERS, {"id": 1, "name": "a", "note": "n"}),
        Updated(ORDERS, {"id": 2, "name": "b", "note": UNCHANGED}, old={"id": 1}),
        Deleted(ORDERS, {"id": 2}),
    )
    (step,) = batch_of(events, end=Lsn(200)).tables[0].steps
    rows = pa.Table.from_batches(logged_changes(batch, LOG, 7) for batch in step.rows.batches()).to_pylist()
    told = [(r["_headrace_op"], r["_headrace_tx_ordinal"], r["id"], r["name"], r["_headrace_unchanged"]) for r in rows]
    assert told == [("I", 0, 1, "a", None), ("U", 1, 2, "b", ["note"]), ("D", 2, 2, None, None)]
    assert [r["_headrace_before"] and r["_headrace_before"]["id"] for r in rows] == [None, 1, 2]
    assert {(r["_headrace_commit_lsn"], r["_headrace_schema_version"]) for r in rows} == {(100, 7)}


def test_a_truncate_is_a_row_without_values() -> None:
    (step,) = batch_of(transaction(Lsn(100), Truncated((ORDERS,))), end=Lsn(200)).tables[0].steps
    assert isinstance(step, Truncate)
    (row,) = logged_truncate(step, LOG, 3).to_pylist()
    assert (row["_headrace_op"], row["_headrace_commit_lsn"], row["id"]) == ("T", 100, None)
    assert row["_headrace_schema_version"] == 3
