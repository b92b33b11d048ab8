"""A pipeline keeps nothing of the batches it has applied: no kind of object grows in number with them."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awaiting import until
from headrace.destinations.iceberg import IcebergDestination
from headrace.destinations.lake import reading
from headrace.stores import SqliteStore
from lakehouse import Lake, iceberg_settings, lake
from pipelining import PUBLICATION, Piped, assert_equal_tables, piped, pipeline_config

Connection = psycopg.Connection[Any]

TABLES = ("public.a", "public.b", "public.c")
WARM_UP, BATCHES = 15, 40
# Of modules whose objects belong to batches: our own, Arrow's, and references to what lives in the JVM.
OWNERS = ("headrace.", "pyarrow.", "py4j.", "psycopg.")
MAINTENANCE = {"interval_s": 0.5, "small_files": 3, "snapshot_age_s": 1, "snapshots_kept": 3}


def counted() -> Counter[str]:
    gc.collect()
    kinds = (type(one) for one in gc.get_objects())
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if isinstance(kind.__module__, str))
    found = Counter(name for name in names if name.startswith(OWNERS))
    # Not seen by the garbage collector.
    return found + Counter({"kept footers": len(reading._footers), "kept columns": len(reading._columns)})


def apply_batches(running: Piped, connection: Connection, count: int) -> None:
    for _ in range(count):
        with connection.transaction():
            for table in TABLES:
                connection.execute(f"UPDATE {table} SET v = v + 1 WHERE id %% 2 = 0".replace("%%", "%"))
        running.until_applied(connection)


@pytest.mark.timeout(300)
def test_no_kind_of_object_grows_with_the_batches(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    for table in TABLES:
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int)")
        connection.execute(f"INSERT INTO {table} SELECT n, 0 FROM generate_series(1, 20) n")
    connection.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {', '.join(TABLES)}")
    config = pipeline_config(conninfo, tmp_path, spool={"segment_age_ms": 20, "keep_seconds": 0})
    config.directory.mkdir(parents=True)
    store = SqliteStore(config.store_path, config.id)
    # A change log is only added to, and compacted.
    modes = {TABLES[2]: {"mode": "changelog"}}
    destination = IcebergDestination(iceberg_settings(tmp_path / "warehouse", maintenance=MAINTENANCE, tables=modes))
    with piped(config, store, destination, spark) as running:
        running.until_ready()
        apply_batches(running, connection, WARM_UP)
        before = counted()
        apply_batches(running, connection, BATCHES)

        def grown() -> dict[str, int]:
            # What belongs to one batch in two would be a leak.
            return {name: more for name, more in (counted() - before).items() if more > BATCHES // 2}

        # Segments are released a moment after they were applied, and files are replaced when maintenance comes to it.
        def settled() -> bool:
            apply_batches(running, connection, 1)
            return not grown()

        try:
            until(settled, 30)
        except AssertionError:
            pytest.fail(f"these grow with the batches: {grown()} in {BATCHES}")
        assert_equal_tables(connection, Lake(lake(tmp_path / "warehouse")), *TABLES[:2])
    store.close()
