"""Everything is killed at random moments under a load of everything, with Iceberg as destination and maintenance on: at
the end every table equals the source, every change is once in its log, and no file lies about that no table has.
"""

from __future__ import annotations

import contextlib
import pickle
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest

from exactly_once import Oracle
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.iceberg import IcebergDestination
from headrace.pipeline.build import build_destination
from headrace.schema import TableName
from headrace.stores import SqliteStore
from killing import Child, live_and_die
from lake_oracle import MODES, Lakehouse, files_on_disk, referenced_files
from mixed_load import TABLES, fill, mixed_load, publish
from pipelining import Piped, piped, pipeline_config
from subscriber import canonical_table

Connection = psycopg.Connection[Any]

PATIENCE_S = 240
# Lives take turns: what one has begun, the next goes on with.
BY_KEY = {"initial_copy": {"key_ranges_over_bytes": 0, "rows_per_range": 300}, "max_copy_connections_per_table": 2}
# Orphans of earlier runs go at the first look; old snapshots stay for as long as a reader here may take.
MAINTENANCE = {
    "interval_s": 2,
    "small_files": 5,
    "deleted_ratio": 0.1,
    "snapshot_age_s": 20,
    "snapshots_kept": 10,
    # In the end the disk has the files of the tables and no others.
    "retention_s": 0,
}
POINTS = ("commit.before", "commit.after", "rewrite.before", "rewrite.after")


def configured(conninfo: str, root: Path, **settings: Any) -> PipelineConfig:
    tables: dict[str, Any] = {table: {"mode": mode} for table, mode in MODES.items()}
    tables["public.parted"] = {"partition_by": ["region"]}
    config = pipeline_config(
        conninfo,
        root,
        spark={"master": "local[2]", "driver_memory": "1g", "short_lived": True},
        spool={"segment_age_ms": 20, "segment_bytes": 64 * 1024},
        destination={
            "kind": "iceberg",
            "warehouse": str(root / "warehouse"),
            "tables": tables,
            "maintenance": MAINTENANCE,
        },
        **settings,
    )
    config.directory.mkdir(parents=True, exist_ok=True)
    return config


class Kills:
    """A source under load, and one life of the pipeline after the other on the same files."""

    def __init__(self, conninfo: str, connection: Connection, root: Path, seed: int) -> None:
        print("seed", seed)
        self._conninfo, self._connection, self._root, self._seed = conninfo, connection, root, seed
        self._chance = random.Random(seed)
        publish(connection)
        self._oracle = Oracle(connection)
        fill(connection, seed)
        self.configs = [configured(conninfo, root, **settings) for settings in (BY_KEY, {})]
        self.house = Lakehouse(root / "warehouse", MODES)

    def kill(self, lives: int) -> list[int]:
        """Under load; returns of how many processes each life was."""
        with mixed_load(self._conninfo, self._seed, thinking_s=0.4):
            return [self._live(life) for life in range(lives)]

    def _live(self, life: int) -> int:
        config = self.configs[life % 2]
        if life == 0 or self._chance.random() < 0.6:
            return live_and_die(config, self._root, self._chance, life, TABLES)
        point = self._chance.choice(POINTS)
        # Compactions are few.
        count = self._chance.randint(1, 3 if point.startswith("rewrite") else 20)
        return self.kill_at(point, count, config, life)

    def kill_at(self, point: str, count: int, config: PipelineConfig, life: int = 0) -> int:
        """Around a commit: by far the likeliest place for a mistake, and the least likely moment."""
        file = self._root / "config"
        file.write_bytes(pickle.dumps(config))
        child = Child(file, self._root, stop_at=f"{point} {count}")
        try:
            child.until(point)
            print(f"life {life}: killed at {point} {count}", flush=True)
        finally:
            size = child.kill()
        return size

    def converge(self, spark: Any) -> None:
        """The last life: it makes everything as if nothing had happened."""
        config = self.configs[0]
        store = SqliteStore(config.store_path, config.id)
        destination = build_destination(config)
        assert isinstance(destination, IcebergDestination)
        with piped(config, store, destination, spark) as running:
            running.until_ready(timeout=PATIENCE_S)
            running.until_applied(self._connection, PATIENCE_S)
            self._compare(store)
            for table in TABLES:
                destination.maintain(TableName(*table.split(".")))
            self._until_tidy(running)
        store.close()
        # Also when maintenance was stopped in the middle.
        self._compare(store=None)
        assert self._untidy() == {}

    def _compare(self, store: SqliteStore | None) -> None:
        self.house.assert_equal(lambda table: canonical_table(self._connection, table), *TABLES)
        self.house.flagged_keys("public.lines")
        if store is not None:
            checked = self.house.check_logs(self._oracle, store)
            print(checked, "changes in the logs, each once")

    def _until_tidy(self, running: Piped) -> None:
        def tidy() -> bool:
            # Snapshots expire while they are read.
            with contextlib.suppress(FileNotFoundError):
                return not self._untidy()
            return False

        running.until(tidy, PATIENCE_S)

    def _untidy(self) -> dict[str, list[str]]:
        """Files on disk that no snapshot has, and the other way round, by table."""
        found = {}
        for table in TABLES:
            disk, referenced = files_on_disk(self.house.warehouse, table), referenced_files(self.house.warehouse, table)
            if disk != referenced:
                found[table] = sorted(disk ^ referenced)
        return found


@pytest.mark.timeout(3600)
def test_kills_around_a_commit(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    seed = random.randrange(1 << 16)
    kills = Kills(conninfo, connection, tmp_path, seed)
    with mixed_load(conninfo, seed, thinking_s=0.4):
        kills.kill_at("commit.before", 14, kills.configs[1], 0)
        size = kills.kill_at("commit.after", 8, kills.configs[1], 1)
    # Python, receiver and JVM at least were killed.
    assert size >= 3
    kills.converge(spark)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_kill_everything_at_any_moment(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    kills = Kills(conninfo, connection, tmp_path, random.randrange(1 << 16))
    sizes = kills.kill(30)
    assert max(sizes) >= 3
    kills.converge(spark)
