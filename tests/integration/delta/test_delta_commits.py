"""Commits to Delta tables: other writers, lost answers, copies that replace a table, and what Spark reads of it all."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from delta_tables import delta_settings, read_delta, table_directory
from headrace.destinations.contract import DestinationContext
from headrace.destinations.delta import DeltaDestination
from headrace.destinations.delta.java import DeltaJava
from headrace.destinations.delta.table import DeltaTable
from headrace.destinations.lake import following
from headrace.destinations.lake.java_errors import CommitStateUnknown
from headrace.errors import DestinationError, DestinationRejected
from headrace.events import Relation
from headrace.lsn import Lsn
from headrace.schema import Column, ReplicatedTableSchema, TableName
from headrace.stores import MemoryStore
from headrace.testing.example_tables import SAMPLES, altered_table, example_column, example_table
from headrace.testing.local_rows import (
    Altered,
    Deleted,
    Happening,
    Inserted,
    Truncated,
    Updated,
    batch_of,
    local_rows,
    transaction,
)

ORDERS = example_table(1, "orders", {"id": "int8", "note": "text"}, ("id",))
SHORT = example_table(1, "orders", {"id": "int8"}, ("id",))
COUNTED = example_table(1, "orders", {"id": "int8", "note": "text", "n": "int4"}, ("id",))
KEY, NOTE, NUMBER = COUNTED.table.columns


class Written:
    """A destination that is open, and what a test does with it."""

    def __init__(self, warehouse: Path, spark: Any, **settings: Any) -> None:
        self.warehouse, self.spark = warehouse, spark
        self.destination = DeltaDestination(delta_settings(warehouse, **settings))
        self.destination.startup(DestinationContext(1, MemoryStore(), spark, (ORDERS,)))

    def copy(self, rows: dict[int, str | None], part: int = 0) -> None:
        given = [{"id": key, "note": note} for key, note in rows.items()]
        self.destination.write_table_rows(ORDERS, local_rows(ORDERS, given, spark=self.spark), part)

    def write(self, end: int, *happened: Happening) -> None:
        self.destination.write_events(batch_of(transaction(Lsn(end - 10), *happened), end=Lsn(end), spark=self.spark))

    def rows(self) -> dict[int, str | None]:
        found = read_delta(self.warehouse, "public", "orders").to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: row.get("note") for row in found}

    def data_files(self) -> set[str]:
        """Whether the table has them or not."""
        return {path.name for path in table_directory(self.warehouse, "public", "orders").glob("*.parquet")}

    def last_commit(self) -> set[str]:
        """The kinds of actions in it."""
        log = table_directory(self.warehouse, "public", "orders") / "_delta_log"
        lines = max(log.glob("0*.json")).read_text(encoding="utf-8").split("\n")
        return {kind for line in lines if line for kind in json.loads(line)}

    def position(self, schema: ReplicatedTableSchema = ORDERS) -> Lsn | None:
        return self.destination.applied_lsn(schema)


@pytest.fixture
def it(tmp_path: Path, spark: Any) -> Iterator[Written]:
    opened = Written(tmp_path, spark)
    yield opened
    opened.destination.shutdown()


def put(key: int, note: str | None = None) -> Updated:
    return Updated(ORDERS, {"id": key, "note": note})


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[int]]:
    """Have something happen before the next commit to a table. Gives the list of commits that were tried."""

    def arrange(happens: Callable[[], object]) -> list[int]:
        tried: list[int] = []
        commit = DeltaTable.commit

        def meet(table: DeltaTable, *given: Any) -> None:
            tried.append(table.version)
            if len(tried) == 1:
                happens()
            commit(table, *given)

        monkeypatch.setattr(DeltaTable, "commit", meet)
        return tried

    return arrange


@pytest.mark.parametrize(
    ("statement", "tries"),
    [
        ("OPTIMIZE {}", 2),
        ("UPDATE {} SET note = 'the user''s' WHERE id = 2", 2),
        ("ALTER TABLE {} SET TBLPROPERTIES ('a' = 'b')", 2),
    ],
)
def test_a_statement_of_the_users_comes_between(
    it: Written, spark: Any, before_commit: Callable[..., list[int]], statement: str, tries: int
) -> None:
    for part, key in enumerate((1, 2, 3)):
        it.copy({key: "old"}, part)
    table = f"delta.`{table_directory(it.warehouse, 'public', 'orders')}`"
    tried = before_commit(lambda: spark.sql(statement.format(table)).collect())
    it.write(100, put(1, "new"), put(2, "new"), Inserted(ORDERS, {"id": 4, "note": "new"}))
    assert it.rows() == {1: "new", 2: "new", 3: "old", 4: "new"}
    assert len(tried) == tries
    it.write(200, put(3, "new"), Deleted(ORDERS, {"id": 1}))
    assert it.rows() == {2: "new", 3: "new", 4: "new"}
    assert it.position() == Lsn(200)
    assert sorted(row["id"] for row in spark.sql(f"SELECT id FROM {table}").collect()) == [2, 3, 4]


@pytest.mark.parametrize("arrives", [True, False])
def test_an_answer_that_got_lost(it: Written, monkeypatch: pytest.MonkeyPatch, arrives: bool) -> None:
    """What is in the log counts: a commit that took place is not taken for one that failed, nor made twice."""
    it.copy({1: "a", 2: "b"})
    commit, calls = DeltaJava.commit, []

    def lose(java: DeltaJava, *given: Any) -> int:
        calls.append(given)
        if arrives:
            commit(java, *given)
        msg = "no answer"
        raise DestinationError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaJava, "commit", lose)
        if arrives:
            it.write(100, put(1, "x"), Deleted(ORDERS, {"id": 2}))
        else:
            # It may still reach the log: its files stay.
            with pytest.raises(CommitStateUnknown, match="no answer"):
                it.write(100, put(1, "x"), Deleted(ORDERS, {"id": 2}))
    assert len(calls) == 1
    assert it.rows() == ({1: "x"} if arrives else {1: "a", 2: "b"})
    assert it.position() == (Lsn(100) if arrives else None)
    it.write(100, put(1, "x"), Deleted(ORDERS, {"id": 2}))
    assert it.rows() == {1: "x"}
    assert len(it.data_files()) == (2 if arrives else 3)


def test_what_cannot_be_known_is_left_alone(it: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    it.copy({1: "a"})

    def fail(*given: Any) -> Any:
        msg = "no answer"
        raise DestinationError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaJava, "commit", fail)
        patch.setattr(DeltaTable, "_read_commit", fail)
        patch.setattr(DeltaTable, "_landed", _landed_after(it, DeltaTable._landed))
        with pytest.raises(CommitStateUnknown):
            it.write(100, put(1, "x"))
    assert len(it.data_files()) == 2


def _landed_after(it: Written, landed: Callable[..., Any]) -> Callable[..., Any]:
    """Somebody else's commit comes before the look at the log."""

    def look(table: DeltaTable, *given: Any) -> Any:
        location = table_directory(it.warehouse, "public", "orders")
        it.spark.sql(f"ALTER TABLE delta.`{location}` SET TBLPROPERTIES ('a' = 'b')")
        return landed(table, *given)

    return look


def test_the_steps_of_a_batch_are_one_commit(it: Written) -> None:
    it.copy({1: "a", 2: "b"})
    log = table_directory(it.warehouse, "public", "orders") / "_delta_log"
    before = len(list(log.glob("*.json")))
    it.write(
        100,
        Inserted(ORDERS, {"id": 3, "note": "c"}),
        Truncated((ORDERS,)),
        Inserted(ORDERS, {"id": 4, "note": "d"}),
        Altered(ORDERS, SHORT),
        Inserted(SHORT, {"id": 5}),
        Updated(SHORT, {"id": 4}),
    )
    assert len(list(log.glob("*.json"))) == before + 1
    assert it.rows() == {4: None, 5: None}
    assert read_delta(it.warehouse, "public", "orders").column_names == ["id"]
    assert it.position() == Lsn(100)


def test_a_new_copy_takes_the_place_of_the_rows_in_one_commit(it: Written) -> None:
    it.copy({1: "a", 2: "b"})
    it.write(100, put(1, "x"))
    it.destination.drop_table_for_copy(ORDERS)
    assert it.position() is None
    assert it.rows() == {1: "x", 2: "b"}
    it.copy({7: "new"})
    assert it.rows() == {7: "new"}
    assert it.position() is None
    assert it.destination.copied_parts(ORDERS) == {0}
    it.write(50, put(8, "y"))
    assert it.rows() == {7: "new", 8: "y"}
    assert it.position() == Lsn(50)


def test_a_copy_that_ended_before_its_first_rows(it: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table it made is there. The next copy may be of other columns, by a pipeline that knows of neither."""

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "commit", crash)
        with pytest.raises(KeyboardInterrupt):
            it.copy({1: "a"})
    assert read_delta(it.warehouse, "public", "orders").column_names == ["id", "note"]
    it.destination.write_table_rows(SHORT, local_rows(SHORT, [{"id": 2}], spark=it.spark), 0)
    assert read_delta(it.warehouse, "public", "orders").to_pylist() == [{"id": 2}]
    assert it.destination.copied_parts(SHORT) == {0}


def test_a_table_of_somebody_else_is_left_alone(it: Written, spark: Any) -> None:
    location = table_directory(it.warehouse, "public", "orders")
    spark.range(3).write.format("delta").save(str(location))
    with pytest.raises(DestinationRejected, match="was not made by Headrace"):
        it.copy({1: "a"})
    assert spark.read.format("delta").load(str(location)).count() == 3


def test_spark_skips_no_file_that_it_needs(tmp_path: Path, spark: Any) -> None:
    """The statistics of files are right: for every type, at its limits."""
    opened = Written(tmp_path, spark)
    day, moment = dt.date(2024, 2, 29), dt.datetime(2024, 3, 31, 2, 30, 0, 123_999)  # noqa: DTZ001
    for number in range(3):
        row: dict[str, Any] = {column.name: None for column in SAMPLES.columns}
        row |= {"id": number, "day": day + dt.timedelta(days=number)}
        for column in SAMPLES.columns:
            if column.type.name == "numeric":
                row[column.name] = Decimal("12345678.91") + number
            elif column.type.name == "timestamp":
                row[column.name] = moment + dt.timedelta(microseconds=number)
            elif column.type.name == "timestamptz":
                row[column.name] = moment.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=number)
        opened.destination.write_table_rows(SAMPLES, local_rows(SAMPLES, [row], spark=spark), number)
    opened.destination.shutdown()
    location = table_directory(tmp_path, "public", SAMPLES.table.name.name)
    table = spark.read.format("delta").load(str(location))
    written = {row["id"]: row for row in table.collect()}
    assert len(written) == 3
    for column in table.columns:
        for key, row in written.items():
            if row[column] is not None:
                assert key in {found["id"] for found in table.where(table[column] == row[column]).collect()}, column


def test_line_separators_in_texts_of_others(it: Written, spark: Any) -> None:
    """The log has an action a line, and others write bounds of texts into it as they are."""
    it.copy({1: "a", 2: "b"})
    location = table_directory(it.warehouse, "public", "orders")
    spark.sql(f"UPDATE delta.`{location}` SET note = 'x\u2028y\x85' WHERE id = 1")
    assert "x\u2028y" in max((location / "_delta_log").glob("0*.json")).read_text(encoding="utf-8")
    it.write(100, put(2, "new"))
    assert it.rows() == {1: "x\u2028y\x85", 2: "new"}
    # Without these the files are asked of Spark, in lines too.
    for checksum in (location / "_delta_log").glob("0*.crc"):
        checksum.unlink()
    again = Written(it.warehouse, spark)
    again.write(200, put(1, "new"))
    again.destination.shutdown()
    assert it.rows() == {1: "new", 2: "new"}


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ((KEY, replace(NOTE, name="remark"), NUMBER), {"id": 1, "remark": "a", "n": 7}),
        ((KEY, NUMBER), {"id": 1, "n": 7}),
        ((KEY, NOTE, example_column("n", 3, "int8")), {"id": 1, "note": "a", "n": 7}),
    ],
    ids=["renamed", "dropped", "widened"],
)
def test_a_column_is_altered_without_its_files(
    it: Written, spark: Any, columns: tuple[Column, ...], shown: dict[str, Any]
) -> None:
    # Given
    altered = altered_table(COUNTED, *columns)
    it.destination.write_table_rows(COUNTED, local_rows(COUNTED, [{"id": 1, "note": "a", "n": 7}], spark=spark), 0)
    files = it.data_files()
    # When
    assert it.destination.follows(Relation(Lsn(90), Lsn(90), COUNTED, altered))
    it.write(100, Altered(COUNTED, altered))
    # Then the log tells of another schema, and of no file
    told = it.last_commit()
    assert "metaData" in told
    assert not told & {"add", "remove"}
    assert it.data_files() == files
    assert read_delta(it.warehouse, "public", "orders").to_pylist() == [shown]
    location = table_directory(it.warehouse, "public", "orders")
    assert [row.asDict() for row in spark.read.format("delta").load(str(location)).collect()] == [shown]


def test_a_value_that_old_rows_show(it: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta cannot show it in rows that are there: the rows of a short table are written anew, a long one is copied."""
    it.copy({1: "a", 2: "b"})
    longer = altered_table(ORDERS, *ORDERS.table.columns, example_column("n", 3, "int4", missing="5"))
    added = Relation(Lsn(90), Lsn(90), ORDERS, longer)
    monkeypatch.setattr(following, "_MOST_FILLED", 1)
    assert not it.destination.follows(added)
    monkeypatch.setattr(following, "_MOST_FILLED", 2)
    assert it.destination.follows(added)
    it.write(100, Altered(ORDERS, longer), Inserted(longer, {"id": 3, "note": "c", "n": None}))
    found = read_delta(it.warehouse, "public", "orders").to_pylist()
    assert {row["id"]: row["n"] for row in found} == {1: 5, 2: 5, 3: None}


def test_a_wider_type_and_a_value_that_needs_it(it: Written, spark: Any) -> None:
    wide = altered_table(COUNTED, KEY, NOTE, example_column("n", 3, "int8"))
    rows = [{"id": 1, "note": None, "n": 7}]
    it.destination.write_table_rows(COUNTED, local_rows(COUNTED, rows, spark=spark), 0)
    it.write(100, Altered(COUNTED, wide), Inserted(wide, {"id": 2, "note": None, "n": 1 << 40}))
    location = table_directory(it.warehouse, "public", "orders")
    found = {row["id"]: row["n"] for row in spark.read.format("delta").load(str(location)).collect()}
    assert (
        found
        == {1: 7, 2: 1 << 40}
        == {row["id"]: row["n"] for row in read_delta(it.warehouse, "public", "orders").to_pylist()}
    )


def test_a_table_that_somebody_removed_is_missed(it: Written) -> None:
    it.copy({1: "a"})
    shutil.rmtree(table_directory(it.warehouse, "public", "orders"))
    # No row to make a table of: a delete of what was copied.
    with pytest.raises(DestinationRejected, match="is missing"):
        it.write(100, Truncated((ORDERS,)))
    it.copy({2: "b"})
    assert it.rows() == {2: "b"}


def test_a_renamed_table_is_the_same_one(it: Written) -> None:
    """A directory where it is to go is nobody's to remove."""
    it.copy({1: "a"})
    renamed = replace(ORDERS, table=replace(ORDERS.table, name=TableName("public", "requests")))
    place = table_directory(it.warehouse, "public", "requests")
    (place / "notes").mkdir(parents=True)
    with pytest.raises(DestinationRejected, match="cannot be renamed"):
        it.write(100, Altered(ORDERS, renamed), Inserted(renamed, {"id": 2, "note": "b"}))
    assert it.rows() == {1: "a"}
    shutil.rmtree(place)
    it.write(100, Altered(ORDERS, renamed), Inserted(renamed, {"id": 2, "note": "b"}))
    found = read_delta(it.warehouse, "public", "requests").to_pylist()
    assert {row["id"]: row["note"] for row in found} == {1: "a", 2: "b"}
    assert not table_directory(it.warehouse, "public", "orders").exists()
    assert it.position(renamed) == Lsn(100)


@pytest.mark.parametrize("below", ["file/lake", "file"])
def test_a_warehouse_that_cannot_be_made(below: str, tmp_path: Path, spark: Any) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DestinationError, match=r"warehouse .*/file") as raised:
        Written(tmp_path / below, spark)
    assert "FileNotFoundException" not in str(raised.value)
