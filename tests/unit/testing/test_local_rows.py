from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.destinations.batch import Changes
from headrace.errors import SparkUnavailable
from headrace.events import UNCHANGED, Begin, Commit, Insert, Relation, Truncate
from headrace.lsn import Lsn
from headrace.pgoutput.changes import CHANGE_FIELDS
from headrace.testing.example_tables import ORDERS, VISITS
from headrace.testing.local_rows import (
    Altered,
    Deleted,
    Inserted,
    LocalRows,
    RetriedRows,
    Truncated,
    Updated,
    batch_of,
    batch_per_table,
    local_rows,
    transaction,
)


def order(key: int, note: object = "n") -> dict[str, object]:
    return {"id": key, "name": "a", "note": note}


def test_a_batch_has_the_steps_of_each_table_in_order() -> None:
    happened = (
        Altered(None, ORDERS),
        Inserted(ORDERS, order(1)),
        Inserted(VISITS, {"page": "a", "seconds": 1}),
        Inserted(ORDERS, order(2)),
        Truncated((ORDERS, VISITS)),
        Inserted(ORDERS, order(3)),
    )
    batch = batch_of(transaction(Lsn(100), *happened), end=Lsn(200))
    orders, visits = batch.tables
    assert [type(step) for step in orders.steps] == [Relation, Changes, Truncate, Changes]
    assert [type(step) for step in visits.steps] == [Changes, Truncate]
    changes = [step for step in orders.steps if isinstance(step, Changes)]
    assert [_column(c, "tx_ordinal") for c in changes] == [[0, 2], [4]]
    assert [type(event) for event in batch.events()][:3] == [Begin, Relation, Insert]


def _column(changes: Changes, name: str) -> list[object]:
    assert isinstance(changes.rows, LocalRows)
    return list(changes.rows.table[name].to_pylist())


def test_changes_have_the_columns_of_the_decoder() -> None:
    happened = (
        Inserted(ORDERS, order(1)),
        Updated(ORDERS, order(2, UNCHANGED), old={"id": 1}),
        Deleted(ORDERS, {"id": 2}),
    )
    (table,) = batch_of(transaction(Lsn(100), *happened), end=Lsn(200)).tables
    (changes,) = table.steps
    assert isinstance(changes, Changes)
    assert changes.rows.arrow_schema.names == [*(field.name for field in CHANGE_FIELDS), "row", "old"]
    assert _column(changes, "op") == ["I", "U", "D"]
    assert _column(changes, "unchanged") == [None, [2], None]
    assert _column(changes, "old_kind") == [None, "K", "K"]
    assert _column(changes, "row") == [order(1), order(2, None), None]
    assert [old and old["id"] for old in _column(changes, "old")] == [None, 1, 2]  # type: ignore[index]


def test_a_table_with_full_identity_sends_whole_old_rows() -> None:
    happened = Deleted(VISITS, {"page": "a", "seconds": 1})
    (table,) = batch_of(transaction(Lsn(100), happened), end=Lsn(200)).tables
    (changes,) = table.steps
    assert isinstance(changes, Changes)
    assert _column(changes, "old_kind") == ["O"]


def test_each_table_can_have_its_own_batch() -> None:
    happened = (Inserted(ORDERS, order(1)), Inserted(VISITS, {"page": "a", "seconds": 1}), Truncated((ORDERS, VISITS)))
    orders, visits = batch_per_table(batch_of(transaction(Lsn(100), *happened), end=Lsn(200)))
    assert [type(event) for event in orders.events()] == [Begin, Insert, Truncate, Commit]
    assert [len(batch.tables) for batch in (orders, visits)] == [1, 1]
    assert [event.tx_ordinal for event in visits.events() if isinstance(event, Insert | Truncate)] == [1, 2]


def test_rows_are_read_in_parts_by_functions_that_travel() -> None:
    rows = local_rows(ORDERS, [order(i) for i in range(2_500)])
    assert rows.in_tasks(lambda batches: [batch.num_rows for batch in batches]) == [[1000], [1000], [500]]
    lock = threading.Lock()
    with pytest.raises(TypeError, match="pickle"):
        rows.in_tasks(lambda batches: lock.locked())


def test_without_spark_there_is_no_dataframe() -> None:
    with pytest.raises(SparkUnavailable):
        local_rows(ORDERS, []).dataframe()


def test_rows_put_together_are_one_part() -> None:
    schema = pa.schema([("n", pa.int64())])
    rows = LocalRows(pa.table({"n": pa.chunked_array([[1, 2, 3], [4, 5]])}), part_rows=2)
    assert rows.in_tasks(lambda batches: [len(batch) for batch in batches]) == [[2], [1], [2]]
    doubled = rows.together(lambda table: pa.concat_tables([table, table]), schema)
    assert doubled.in_tasks(lambda batches: [len(batch) for batch in batches]) == [[10]]


def test_rows_of_tasks_that_run_twice(tmp_path: Path) -> None:
    def write(batches: Iterator[pa.RecordBatch]) -> str:
        rows = sum(batch.num_rows for batch in batches)
        with tempfile.NamedTemporaryFile("w", dir=tmp_path, delete=False) as file:
            file.write(str(rows))
        return Path(file.name).name

    table = local_rows(ORDERS, [order(i) for i in range(2_500)]).table
    told = RetriedRows(table).in_tasks(write)
    assert [(tmp_path / name).read_text() for name in told] == ["1000", "1000", "500"]
    assert len(list(tmp_path.iterdir())) == 2 * len(told)
    together = RetriedRows(table).together(lambda whole: whole, table.schema).in_tasks(write)
    assert [(tmp_path / name).read_text() for name in together] == ["2500"]
    assert len(list(tmp_path.iterdir())) == 2 * (len(told) + 1)
