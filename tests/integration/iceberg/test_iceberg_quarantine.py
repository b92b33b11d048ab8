"""The quarantine table: JSON that no VARIANT holds is kept there like any other value, once, and it is maintained."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.destinations.contract import DestinationContext
from headrace.destinations.iceberg import IcebergDestination
from headrace.errors import UnrepresentableValue
from headrace.lsn import Lsn
from headrace.pgtypes.registry import builtin_type
from headrace.schema import ReplicatedTableSchema, ReplicationMask
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import Deleted, Inserted, Truncated, Updated, batch_of, local_rows, transaction
from lakehouse import iceberg_settings, lake, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JSON_OID = 114
HUGE = '{"n": 1e999}'
HALF = '["\\ud800"]'
_PATIENCE_S = 120


def _documents() -> ReplicatedTableSchema:
    plain = example_table(1, "documents", {"id": "int8", "doc": "text", "amount": "numeric"}, ("id",)).table
    json_type = builtin_type(_JSON_OID)
    assert json_type is not None
    columns = tuple(replace(column, type=json_type) if column.name == "doc" else column for column in plain.columns)
    table = replace(plain, columns=columns)
    return ReplicatedTableSchema(table, ReplicationMask.everything(table))


DOCUMENTS = _documents()


def _opened(warehouse: Path, spark: SparkSession, *, quarantine: bool = True, **settings: Any) -> IcebergDestination:
    destination = IcebergDestination(iceberg_settings(warehouse, json_as="variant", **settings))
    destination.startup(DestinationContext(1, MemoryStore(), spark, (DOCUMENTS,), quarantine))
    destination.claim()
    return destination


def _document(key: int, doc: str | None) -> dict[str, object]:
    return {"id": key, "doc": doc, "amount": None}


def _quarantined(warehouse: Path) -> list[tuple[Any, ...]]:
    found = read_table(warehouse, "headrace.quarantine_1").to_pylist()
    names = ("table_name", "key", "column", "text", "commit_lsn", "tx_ordinal")
    return sorted((tuple(row[name] for name in names) for row in found), key=repr)


def _nulls(warehouse: Path, spark: SparkSession) -> list[tuple[int, bool]]:
    """Keys of the table, and whether their document is NULL, as Spark reads it: pyiceberg cannot."""
    catalog = lake(warehouse)
    # Only the pointer: pyiceberg refuses the schema.
    with catalog.engine.connect() as connection:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = 'documents'"
        (location,) = connection.exec_driver_sql(query).one()
    catalog.close()
    rows = spark.read.format("iceberg").load(location).selectExpr("id", "doc IS NULL").collect()
    return sorted((row[0], row[1]) for row in rows)


@pytest.mark.parametrize("mode", ["mirror", "soft_delete", "changelog"])
def test_json_that_no_variant_holds(mode: str, tmp_path: Path, spark: SparkSession) -> None:
    destination = _opened(tmp_path, spark, mode=mode)
    rejected = {"key": '{"id": "2"}', "column": "amount", "text": "NaN", "commit_lsn": None, "tx_ordinal": None}
    copied = [_document(1, "[1]"), _document(2, HUGE), _document(3, None)]
    for _ in range(2):
        destination.write_table_rows(DOCUMENTS, local_rows(DOCUMENTS, copied, rejected=[rejected]), 0)
    name = "public.documents"
    at_copy = [(name, '{"id": "2"}', "amount", "NaN", None, None), (name, '{"id": "2"}', "doc", HUGE, None, None)]
    assert _quarantined(tmp_path) == sorted(at_copy, key=repr)

    # A batch of two steps, with lost JSON in both; it comes twice, as after a crash.
    changes = (
        transaction(Lsn(100), Inserted(DOCUMENTS, _document(4, HALF)), Deleted(DOCUMENTS, {"id": 2})),
        transaction(Lsn(110), Truncated((DOCUMENTS,))),
        transaction(
            Lsn(120), Inserted(DOCUMENTS, _document(5, "{}")), Updated(DOCUMENTS, _document(5, HUGE)),
            Inserted(DOCUMENTS, _document(6, "null")),
        ),
    )  # fmt: skip
    for _ in range(2):
        destination.write_events(batch_of(*changes, end=Lsn(200)))
    destination.shutdown()
    streamed = [(name, '{"id": "4"}', "doc", HALF, 100, 0), (name, '{"id": "5"}', "doc", HUGE, 120, 1)]
    assert _quarantined(tmp_path) == sorted([*at_copy, *streamed], key=repr)
    if mode == "mirror":
        assert _nulls(tmp_path, spark) == [(5, True), (6, False)]


def test_a_copy_anew_forgets_what_was_kept_aside(tmp_path: Path, spark: SparkSession) -> None:
    destination = _opened(tmp_path, spark)
    destination.write_table_rows(DOCUMENTS, local_rows(DOCUMENTS, [_document(1, HUGE)]), 0)
    destination.drop_table_for_copy(DOCUMENTS)
    destination.write_table_rows(DOCUMENTS, local_rows(DOCUMENTS, [_document(1, HALF)]), 0)
    destination.shutdown()
    assert [(row[1], row[3]) for row in _quarantined(tmp_path)] == [('{"id": "1"}', HALF)]


def test_json_that_no_variant_holds_as_an_error(tmp_path: Path, spark: SparkSession) -> None:
    destination = _opened(tmp_path, spark, quarantine=False)
    with pytest.raises(
        UnrepresentableValue, match=r"public\.documents has JSON in doc that no VARIANT holds"
    ) as raised:
        destination.write_table_rows(DOCUMENTS, local_rows(DOCUMENTS, [_document(1, HUGE)]), 0)
    assert "json_as" in str(raised.value.hint)
    assert HUGE not in str(raised.value)
    assert destination.copied_parts(DOCUMENTS) == frozenset()
    destination.write_table_rows(DOCUMENTS, local_rows(DOCUMENTS, [_document(1, "1")]), 0)
    batch = batch_of(transaction(Lsn(100), Inserted(DOCUMENTS, _document(2, HALF))), end=Lsn(200))
    with pytest.raises(UnrepresentableValue, match="no VARIANT holds"):
        destination.write_events(batch)
    assert destination.applied_lsn(DOCUMENTS) is None
    destination.shutdown()
    assert _nulls(tmp_path, spark) == [(1, False)]
    # What the refused ones wrote is gone.
    assert len(list((tmp_path / "public/documents/data").glob("*.parquet"))) == 1


def test_the_quarantine_table_is_maintained(tmp_path: Path, spark: SparkSession) -> None:
    destination = _opened(tmp_path, spark)
    for part in range(4):
        destination.write_table_rows(DOCUMENTS, local_rows(DOCUMENTS, [_document(part, HUGE)]), part)
    destination.shutdown()
    before = _quarantined(tmp_path)
    assert len(before) == 4

    def now() -> tuple[int, int]:
        table = lake(tmp_path).load_table("headrace.quarantine_1")
        return len(table.inspect.data_files()), len(table.snapshots())

    assert now() == (4, 4)
    # In a later run, to which no such value comes.
    settings = {"interval_s": 0.05, "small_files": 2, "snapshots_kept": 1}
    destination = _opened(tmp_path, spark, maintenance=settings)
    deadline = time.monotonic() + _PATIENCE_S
    while now() != (1, 1) and time.monotonic() < deadline:
        time.sleep(0.05)
    destination.shutdown()
    assert now() == (1, 1)
    assert _quarantined(tmp_path) == before
