"""A native subscription beside the pipeline, on the same publication and under a load of everything: the lakehouse's
tables, read by pyiceberg, equal the subscriber's, row for row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from exactly_once import Oracle
from headrace.destinations.contract import Destination
from headrace.destinations.iceberg import IcebergDestination
from headrace.stores import SqliteStore
from headrace.testing import PostgresServer
from headrace.testing.durable_destination import DurableDestination
from lake_oracle import MODES, Lakehouse, assert_same, key_text
from lakehouse import iceberg_settings
from mixed_load import DDL, TABLES, fill, mixed_load, publish
from pipelining import Piped, destination_rows, piped, pipeline_config
from subscriber import Subscriber, canonical_table, subscribed

Connection = psycopg.Connection[Any]
Check = Callable[[], None]

PATIENCE_S = 180
SOFT = "public.lines"
# Smaller than a large transaction.
SETTINGS: dict[str, Any] = {"spool": {"segment_age_ms": 20, "segment_bytes": 64 * 1024}, "batch": {"max_fill_ms": 200}}
BY_KEY = {"initial_copy": {"key_ranges_over_bytes": 0, "rows_per_range": 300}, "max_copy_connections_per_table": 2}


class Scene:
    """A source with its subscriber, an oracle of its changes, and a pipeline under load."""

    def __init__(self, source: Connection, conninfo: str, native: Subscriber, root: Path, seed: int) -> None:
        print("seed", seed)
        self._conninfo, self._seed, self._source, self.native = conninfo, seed, source, native
        self.oracle = Oracle(source)
        fill(source, seed)
        # Copies of both kinds, from seed to seed.
        self._config = pipeline_config(conninfo, root, **SETTINGS, **(BY_KEY if seed % 2 else {}))
        self._config.directory.mkdir(parents=True)
        self.store = SqliteStore(self._config.store_path, self._config.id)

    def run(self, destination: Destination, spark: Any, transactions: int, midway: Check, check: Check) -> None:
        """Under load from before the copies to the end; halfway, and at the end, all comes to rest and is looked at."""
        with (
            mixed_load(self._conninfo, self._seed) as load,
            piped(self._config, self.store, destination, spark) as running,
        ):
            load.go_on(transactions // 2)
            running.until_ready(timeout=PATIENCE_S)
            for look in (midway, check):
                load.go_on(transactions)
                load.wait()
                self._settle(running)
                look()
            print(load.made, "transactions")
        self.store.close()

    def _settle(self, running: Piped) -> None:
        running.until_applied(self._source, PATIENCE_S)
        self.native.until_applied(PATIENCE_S)
        for table in TABLES:
            assert self.native.rows(table) == canonical_table(self._source, table), "the subscriber differs"


Stage = Callable[[int], Scene]


@pytest.fixture
def stage(postgres: PostgresServer, conninfo: str, connection: Connection, tmp_path: Path) -> Iterator[Stage]:
    """Sets the scene for a seed."""
    publish(connection)
    with subscribed(postgres, conninfo, connection, DDL) as native:
        yield lambda seed: Scene(connection, conninfo, native, tmp_path, seed)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("seed", "transactions"),
    # Of each writer, halfway and then again.
    [(None, 40), *(pytest.param(n, 300, marks=pytest.mark.long) for n in range(1, 11))],
)
def test_the_lakehouse_equals_a_native_subscriber(
    stage: Stage, spark: Any, tmp_path: Path, seed: int | None, transactions: int
) -> None:
    scene = stage(random.randrange(1 << 16) if seed is None else seed)
    native = scene.native
    modes = {table: {"mode": mode} for table, mode in MODES.items()}
    modes["public.parted"] = {"partition_by": ["region", "days(at)"]}
    house = Lakehouse(tmp_path / "warehouse", MODES)
    known: set[str] = set()

    def midway() -> None:
        house.assert_equal(native.rows, *TABLES)
        known.update(key_text(SOFT, row) for row in native.rows(SOFT))

    def check() -> None:
        house.assert_equal(native.rows, *TABLES)
        checked = house.check_logs(scene.oracle, scene.store)
        print(checked, "changes in the logs, each once")
        assert checked > transactions / 4
        # Every row that was there and is not is flagged.
        alive = {key_text(SOFT, row) for row in native.rows(SOFT)}
        assert known - alive <= house.flagged_keys(SOFT)

    destination = IcebergDestination(iceberg_settings(house.warehouse, tables=modes))
    scene.run(destination, spark, transactions, midway, check)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_fold_equals_a_native_subscriber(stage: Stage, spark: Any, tmp_path: Path) -> None:
    """The same without a lakehouse: what differs only there is the lakehouse's."""
    scene = stage(random.randrange(1 << 16))
    native = scene.native
    destination = DurableDestination(tmp_path / "destination.db")

    def check() -> None:
        for table in TABLES:
            assert_same(table, native.rows(table), destination_rows(destination, table))
        assert scene.oracle.check(scene.store, destination, *TABLES) > 100

    scene.run(destination, spark, 30, lambda: None, check)
