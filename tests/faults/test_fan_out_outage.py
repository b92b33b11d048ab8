"""Fan-out to Iceberg and DuckDB, with DuckDB away for a while: Iceberg does not notice, DuckDB comes back by itself.

Run it with `-s` to see how old changes were when Iceberg had them, before the outage and during it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duckdb_reading import DuckDBFile
from headrace.errors import DestinationConnectionFailed
from headrace.lsn import Lsn
from headrace.pipeline import Pipeline
from headrace.pipeline.build import build_destinations, build_stores
from headrace.testing.faulty_destination import FaultyDestination
from lakehouse import Lake, lake
from load import SCHEMA
from load import running as writing
from pipelining import Piped, assert_equal_tables, pipeline_config

Connection = psycopg.Connection[Any]

TABLES = ("public.items", "public.journal", "public.scratch")
FRESH_ROUNDS = 10


class Outage:
    """A destination that can be away: every call that would write or open fails."""

    def __init__(self) -> None:
        self.on = False
        self.failed = 0

    def __call__(self, method: str, table: str | None) -> None:
        del table
        if self.on and method != "shutdown":
            self.failed += 1
            raise DestinationConnectionFailed("the database is away", hint="plug it in")


def ages(running: Piped, connection: Connection, destination: str, until: float = 0.0) -> dict[Lsn, float]:
    """How long changes took to become durable at a destination, one after the other."""
    found: dict[Lsn, float] = {}
    while len(found) < FRESH_ROUNDS or time.monotonic() < until:
        row = connection.execute("SELECT pg_logical_emit_message(true, 'tests', 'marker')::text").fetchone()
        assert row is not None
        marker, started = Lsn.parse(row[0]), time.monotonic()

        def arrived(marker: Lsn = marker) -> bool:
            tables = running.status.destinations[destination].tables.values()
            return bool(tables) and all(table.position > marker for table in tables)

        running.until(arrived)
        found[marker] = time.monotonic() - started
    return found


@contextmanager
def outage_over(outage: Outage) -> Iterator[None]:
    outage.on = True
    try:
        yield
    finally:
        outage.on = False


@pytest.mark.long
@pytest.mark.parametrize("seconds", [60])
def test_one_destination_away_for_a_while(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, seconds: int
) -> None:
    connection.execute(SCHEMA)
    connection.execute("INSERT INTO items SELECT -n, n % 7, 'copied' FROM generate_series(1, 5000) n")
    connection.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    several = {
        "lake": {"kind": "iceberg", "warehouse": str(tmp_path / "lake")},
        "duck": {"kind": "duckdb", "database": str(tmp_path / "duck.db")},
    }
    config = pipeline_config(conninfo, tmp_path, destinations=several, table_error_retry_max_attempts=100)
    destinations, stores, outage = build_destinations(config), build_stores(config), Outage()
    destinations["duck"] = FaultyDestination(destinations["duck"], outage)
    with Pipeline(config, stores, destinations, spark=spark) as pipeline:
        pipeline.start()
        running = Piped(pipeline)
        running.until(lambda: len(running.status.tables) == 2 * len(TABLES))
        running.until_ready()
        with writing(conninfo, writers=2):
            before = ages(running, connection, "lake")
            with outage_over(outage):
                during = ages(running, connection, "lake", time.monotonic() + seconds)
                stood = min(table.position for table in pipeline.status.destinations["duck"].tables.values())
        running.until_applied(connection, timeout=300)
        running.until_ready(timeout=300)
    pipeline.wait()
    for store in stores.values():
        store.close()
    print(f"Iceberg had changes after {_summed(before)} before the outage and {_summed(during)} during it")
    # Half a second: a batch more or less in flight, on a machine that does everything at once.
    assert statistics.median(during.values()) <= 2 * statistics.median(before.values()) + 0.5
    assert outage.failed > 0
    assert stood < max(during), "it was away while the other went on"
    catalog = lake(tmp_path / "lake")
    assert_equal_tables(connection, Lake(catalog), *TABLES)
    catalog.close()
    assert_equal_tables(connection, DuckDBFile(tmp_path / "duck.db"), *TABLES)


def _summed(ages: dict[Lsn, float]) -> str:
    seconds = ages.values()
    return f"{statistics.median(seconds):.2f} s (median of {len(seconds)}, at most {max(seconds):.2f} s)"
