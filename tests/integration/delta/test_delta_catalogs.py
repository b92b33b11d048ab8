"""Delta tables in a catalog of Spark's: found by name, renamed and removed with their directories."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import delta_catalog
from delta_tables import delta_settings
from headrace.destinations.contract import DestinationContext
from headrace.destinations.delta import DeltaDestination
from headrace.errors import DestinationRejected
from headrace.schema import ReplicatedTableSchema
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.hive_metastore import HiveMetastore
from headrace.testing.local_rows import local_rows


@pytest.fixture
def catalog(spark: Any) -> Iterator[Any]:
    """The session's own, which all tests of a run share: put back as it was."""
    before = {row["namespace"] for row in spark.sql("SHOW NAMESPACES").collect()}
    yield spark
    for row in spark.sql("SHOW NAMESPACES").collect():
        if row["namespace"] not in before:
            spark.sql(f"DROP NAMESPACE `{row['namespace']}` CASCADE")


def test_the_catalog_of_the_session(conninfo: str, catalog: Any, tmp_path: Path) -> None:
    destination = {"kind": "delta", "warehouse": str(tmp_path / "lake"), "catalog": "spark_catalog"}
    delta_catalog.registered_renamed_and_removed(conninfo, tmp_path, catalog, {"destination": destination})


@pytest.mark.spark
def test_a_hive_metastore(conninfo: str, tmp_path: Path) -> None:
    """With the settings of the page, which are fixed when Spark starts: in a process of its own."""
    with HiveMetastore(tmp_path / "hive") as metastore:
        command = [sys.executable, delta_catalog.__file__, conninfo, str(tmp_path), metastore.uri]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]


def _write(spark: Any, root: Path, table: ReplicatedTableSchema, **settings: Any) -> None:
    destination = DeltaDestination(delta_settings(root, catalog="spark_catalog", **settings))
    try:
        destination.startup(DestinationContext(1, MemoryStore(), spark, (table,)))
        destination.write_table_rows(table, local_rows(table, [{"id": 1}]), 0)
    finally:
        destination.shutdown()


def test_a_name_that_is_taken_in_the_catalog(catalog: Any, tmp_path: Path) -> None:
    table = example_table(1, "orders", {"id": "int8"}, ("id",))
    catalog.sql("CREATE NAMESPACE public")
    catalog.sql("CREATE TABLE public.orders USING delta AS SELECT 7 AS theirs")
    with pytest.raises(DestinationRejected, match=r"spark_catalog has something else that is called public\.orders"):
        _write(catalog, tmp_path, table)
    # And at every further attempt, though the table is there by now.
    with pytest.raises(DestinationRejected, match="something else"):
        _write(catalog, tmp_path, table)
    assert [row["theirs"] for row in catalog.sql("SELECT * FROM public.orders").collect()] == [7]
    catalog.sql("DROP TABLE public.orders")
    _write(catalog, tmp_path, table)
    assert [row["id"] for row in catalog.sql("SELECT * FROM public.orders").collect()] == [1]


def test_a_name_that_the_catalog_does_not_take(catalog: Any, tmp_path: Path) -> None:
    table = example_table(1, "Order Items", {"id": "int8"}, ("id",))
    with pytest.raises(DestinationRejected, match=r"cannot register table public\.Order Items") as raised:
        _write(catalog, tmp_path, table)
    assert "order items" in str(raised.value.detail)
    _write(catalog, tmp_path, table, tables={"public.Order Items": {"name": "public.order_items"}})
    assert [row["id"] for row in catalog.sql("SELECT * FROM public.order_items").collect()] == [1]
