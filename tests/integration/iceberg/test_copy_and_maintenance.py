"""A copy takes as long as it takes: maintenance of its table does not wait for it, and does it no harm."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.destinations.contract import DestinationContext
from headrace.destinations.iceberg import IcebergDestination
from headrace.errors import DestinationError
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import LocalRows, local_rows
from lakehouse import iceberg_settings, lake, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = example_table(1, "orders", {"id": "int8"}, ("id",))
# Far more than maintenance takes, on a loaded machine too; only a test that fails waits for so long.
_PATIENCE_S = 120


class WhileCopied(LocalRows):
    """Rows of whose copy the files are written, and not committed yet, when something else happens."""

    def __init__(self, ids: list[int], happens: Callable[[], object]) -> None:
        super().__init__(pa.table({"id": pa.array(ids, pa.int64())}))
        object.__setattr__(self, "happens", happens)

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], Any]) -> list[Any]:
        written = super().in_tasks(write)
        self.happens()
        return written


@pytest.fixture
def destination(tmp_path: Path, spark: SparkSession) -> Iterator[IcebergDestination]:
    maintenance = {"enabled": False, "small_files": 2, "orphan_age_s": 0, "snapshots_kept": 1, "retention_s": 0}
    opened = IcebergDestination(iceberg_settings(tmp_path, maintenance=maintenance))
    opened.startup(DestinationContext(1, MemoryStore(), spark, (ORDERS,)))
    yield opened
    opened.shutdown()


def ids(warehouse: Path) -> list[int]:
    return sorted(read_table(warehouse, "public.orders")["id"].to_pylist())


def data_files(warehouse: Path) -> int:
    return len(list((warehouse / "public/orders/data").glob("*.parquet")))


def test_maintenance_does_not_wait_for_a_copy_and_leaves_its_files(
    destination: IcebergDestination, tmp_path: Path
) -> None:
    for part, key in enumerate((1, 2)):
        destination.write_table_rows(ORDERS, LocalRows(pa.table({"id": pa.array([key], pa.int64())})), part)
    maintained = threading.Event()

    def maintain() -> None:
        destination.maintain(ORDERS.table.name)
        maintained.set()

    def meanwhile() -> None:
        # In a thread of its own, as maintenance is: the copy's own thread could pass any lock it holds.
        thread = threading.Thread(target=maintain)
        thread.start()
        thread.join(_PATIENCE_S)

    rows = WhileCopied([3], meanwhile)
    destination.write_table_rows(ORDERS, rows, 2)

    assert maintained.is_set()
    # What the copy had written no snapshot named at that time: with no age at all it is no orphan.
    assert ids(tmp_path) == [1, 2, 3]
    assert destination.copied_parts(ORDERS) == {0, 1, 2}
    # One of the two that were merged, and the copy's.
    assert data_files(tmp_path) == 2
    # And when no copy is under way, what nobody names goes.
    (tmp_path / "public/orders/data/left.parquet").write_bytes(b"x")
    destination.maintain(ORDERS.table.name)
    assert not (tmp_path / "public/orders/data/left.parquet").exists()


def test_a_table_that_was_dropped_while_it_was_copied(destination: IcebergDestination, tmp_path: Path) -> None:
    rows = WhileCopied([1], lambda: lake(tmp_path).drop_table("public.orders"))
    with pytest.raises(DestinationError, match=r"public\.orders was dropped while rows were copied into it"):
        destination.write_table_rows(ORDERS, rows, 0)
    assert data_files(tmp_path) == 0
    # It is made again, with what is copied then.
    destination.write_table_rows(ORDERS, LocalRows(rows.table), 0)
    assert ids(tmp_path) == [1]


def test_a_copy_that_ended_before_its_first_rows(destination: IcebergDestination, tmp_path: Path) -> None:
    """The table it made is there. The next copy may be of other columns, by a pipeline that knows of neither."""
    long = example_table(1, "orders", {"id": "int8", "note": "text"}, ("id",))

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        destination.write_table_rows(ORDERS, WhileCopied([1], crash), 0)
    destination.write_table_rows(long, local_rows(long, [{"id": 2, "note": "x"}]), 0)
    assert read_table(tmp_path, "public.orders").to_pylist() == [{"id": 2, "note": "x"}]
    assert destination.copied_parts(long) == {0}


def test_metadata_that_a_power_loss_took(tmp_path: Path, spark: SparkSession) -> None:
    def opened() -> IcebergDestination:
        destination = IcebergDestination(iceberg_settings(tmp_path))
        destination.startup(DestinationContext(1, MemoryStore(), spark, (ORDERS,)))
        return destination

    rows = LocalRows(pa.table({"id": pa.array([1], pa.int64())}))
    destination = opened()
    destination.write_table_rows(ORDERS, rows, 0)
    destination.shutdown()
    # Given that the file to which the catalog leads is empty
    newest = max((tmp_path / "public/orders/metadata").glob("*.metadata.json"))
    newest.write_bytes(b"")
    destination = opened()
    with pytest.raises(DestinationError, match=r"cannot load table public\.orders") as raised:
        destination.copied_parts(ORDERS)
    assert newest.name in str(raised.value.detail)
    # When its name is taken out of the catalog, as the documentation says
    lake(tmp_path).drop_table("public.orders")
    # Then it can be copied again
    destination.drop_table_for_copy(ORDERS)
    destination.write_table_rows(ORDERS, rows, 0)
    destination.shutdown()
    assert ids(tmp_path) == [1]
