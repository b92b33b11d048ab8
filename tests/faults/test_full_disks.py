"""Disks that are really full, under spool, store, DuckDB file, staging and warehouse.

The pipeline names the disk, `headrace status` exits with 1, and once there is space again it continues by itself:
nothing is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awaiting import until
from commanding import invoke, write_config
from delta_tables import DeltaLake
from duckdb_reading import DuckDBFile
from headrace.config.load import load_pipeline_config
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.parquet import open_log
from headrace.pipeline.build import build_destination, build_store
from headrace.pipeline.observation import SourceObserver, observe
from headrace.pipeline.replaying import Replay
from headrace.stores import MemoryStore
from headrace.stores.contract import PipelineStore
from headrace.testing.postgres import PASSWORD
from lakehouse import Lake, lake
from pipelining import Piped, assert_equal_tables, piped
from small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.faults

Connection = psycopg.Connection[Any]

T = "public.t"
FILLED_BY_ROWS = ("spool", "duckdb")
QUICK = {
    "batch": {"max_fill_ms": 50},
    "receiver": {"status_interval_ms": 50, "reconnect_max_delay_ms": 200},
    "table_error_retry_delay_ms": 200,
}
INSERT = "INSERT INTO t (note) SELECT md5(random()::text) || repeat(md5(n::text), 30) FROM generate_series(1, 200) n"


class Load:
    """Rows of about a kilobyte that do not compress, 200 a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        connection.execute("CREATE TABLE t (id serial PRIMARY KEY, note text)")
        connection.execute("ALTER TABLE t ALTER note SET STORAGE EXTERNAL")
        connection.execute("INSERT INTO t (note) VALUES ('copied')")
        connection.execute("CREATE PUBLICATION pub FOR TABLE t")

    def until(self, running: Piped, condition: Callable[[], bool]) -> None:
        """Change rows until the condition holds."""

        def changed() -> bool:
            self._connection.execute(INSERT)
            self._connection.execute("UPDATE t SET note = 'u' || id WHERE id % 50 = 1")
            self._connection.execute("DELETE FROM t WHERE id % 70 = 1")
            return condition()

        running.until(changed)


IN_LONG_FORM = [pytest.param(part, marks=pytest.mark.long) for part in ("staging", "iceberg", "delta", "parquet")]


@pytest.mark.parametrize("part", ["spool", "store", "duckdb", *IN_LONG_FORM])
def test_a_full_disk(conninfo: str, connection: Connection, spark: Any, tmp_path: Path, part: str) -> None:
    load = Load(connection)
    with small_disk(tmp_path / "disk", 8) as disk:
        file, reader = config_file(conninfo, tmp_path, part)
        config = load_pipeline_config(file, {"HEADRACE__PG_CONNECTION__PASSWORD": PASSWORD})
        with closing(build_store(config)) as store, piped(config, store, build_destination(config), spark) as running:
            running.until_ready()
            if part not in FILLED_BY_ROWS:
                disk.fill()
            if part == "staging":
                # So many in one batch that tasks read them.
                connection.execute(f"{INSERT}, generate_series(1, 40)")
            load.until(running, lambda: is_told(config, store, disk))
            assert invoke("status", file).exit_code == 1
            disk.resize(200)
            running.until_ready()
            running.until_applied(connection)
            assert_equal_tables(connection, reader, T)
            until(lambda: invoke("status", file).exit_code == 0)


def config_file(conninfo: str, root: Path, part: str) -> tuple[Path, Any]:
    """A pipeline with one part on the small disk, and how to read its destination."""

    def place(name: str) -> Path:
        return (root / "disk" if name == part else root) / name

    destination: dict[str, Any] = {"kind": "duckdb", "database": str(place("duckdb")), "staging": str(place("staging"))}
    reader: Any = DuckDBFile(place("duckdb"))
    if part in ("iceberg", "delta"):
        destination = {"kind": part, "warehouse": str(place(part)), "maintenance": {"enabled": False}}
        reader = DeltaLake(place(part)) if part == "delta" else IcebergFiles(place(part))
    if part == "parquet":
        destination, reader = {"kind": part, "location": str(place(part))}, ReplayedLog(place(part))
    file = write_config(
        root / "pipeline.yaml",
        conninfo,
        **QUICK,
        spool={"uri": str(place("spool")), "segment_age_ms": 20, "keep_seconds": 600 if part == "spool" else 0},
        store={"path": str(place("store"))},
        destination=destination,
    )
    return file, reader


class IcebergFiles:
    """The tables of a warehouse, through its catalog as it is when they are read."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse

    def rows(self, table: str) -> Any:
        return Lake(lake(self._warehouse)).rows(table)


class ReplayedLog:
    """The tables that a log of Parquet files gives when it is replayed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def rows(self, table: str) -> Any:
        destination, store = MemoryDestination(), MemoryStore()
        Replay(open_log(str(self._directory), {}), destination, DestinationContext(1, store, None), store).run()
        return destination.rows(table)


def is_told(config: PipelineConfig, store: PipelineStore, disk: SmallDisk) -> bool:
    """Whether the trouble can be seen from outside, with the disk's name and what to do."""
    with SourceObserver(config) as observer:
        seen = observe(config, {"": store}, observer)
    told = [f"{problem.message} {problem.hint}" for problem in seen.problems]
    told += [f"{table.state.reason} {table.state.solution}" for table in seen.errored if table.state is not None]
    return any(str(disk.root) in text and "enlarge it" in text for text in told)
