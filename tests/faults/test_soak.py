"""A pipeline under mixed load for an hour: its memory, descriptors and threads do not grow, and its tables are right.

`make test-soak MINUTES=20 DESTINATION=duckdb`. Into Iceberg the load is that of `mixed_load`; into other destinations,
and with LOAD=shop, it is the demo's shop. Samples, log and report are left in the directory that is printed first.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from commanding import write_config
from headrace.demo.interrupts import Interrupts
from headrace.demo.lakehouses import LAKEHOUSES
from headrace.demo.proof import prove_table
from headrace.demo.shop import PUBLICATION as SHOP_PUBLICATION
from headrace.demo.shop import TABLES as SHOP_TABLES
from headrace.demo.shop import Shop, create_shop
from headrace.demo.traffic import Traffic
from headrace.testing.postgres import PASSWORD
from lake_oracle import MODES, Lakehouse
from lakehouse import lake
from mixed_load import TABLES, fill, mixed_load, publish
from pipelining import PUBLICATION
from soak_judging import judge, warm_up_s
from soak_sampling import Samples, sampled
from started import Started, commands
from subscriber import canonical_table

Connection = psycopg.Connection[Any]

MINUTES = float(os.environ.get("HEADRACE_SOAK_MINUTES", "60"))
DESTINATION = os.environ.get("HEADRACE_SOAK_DESTINATION", "iceberg")
LOAD = os.environ.get("HEADRACE_SOAK_LOAD") or ("mixed" if DESTINATION == "iceberg" else "shop")
INTENSITY = float(os.environ.get("HEADRACE_SOAK_INTENSITY", "1"))
"""Transactions per second are about 10 times this."""
DIRECTORY = Path(os.environ.get("HEADRACE_SOAK_DIRECTORY", ".cache/soak"))

SETTLE_S = 600
# Often enough that the numbers of snapshots and files are level before the warm-up ends.
MAINTENANCE = {"interval_s": 30, "snapshot_age_s": 120, "orphan_age_s": 3600}


@dataclass(frozen=True, slots=True)
class Soaked:
    """A source with its load, and what must be equal at the end."""

    publication: str
    tables: int
    settings: dict[str, Any]
    """Of the destination."""
    load: Callable[[], AbstractContextManager[object]]
    compare: Callable[[], None]
    """Raises AssertionError while a table differs from the source."""


def mixed(conninfo: str, connection: Connection, root: Path) -> Soaked:
    assert DESTINATION == "iceberg", "this load has types and modes that only the Iceberg oracle compares"
    seed = random.randrange(1 << 16)
    print("seed", seed)
    publish(connection)
    fill(connection, seed)
    house = Lakehouse(root / "warehouse", MODES)
    tables = {table: {"mode": mode} for table, mode in MODES.items()}
    # Four writers that think twice this long on average.
    return Soaked(
        PUBLICATION,
        len(TABLES),
        {"warehouse": str(house.warehouse), "tables": tables},
        lambda: mixed_load(conninfo, seed, thinking_s=0.8 / INTENSITY),
        lambda: house.assert_equal(lambda table: canonical_table(connection, table), *TABLES),
    )


def shop(conninfo: str, connection: Connection, root: Path) -> Soaked:
    size, lakehouse = Shop.of_size(20_000), LAKEHOUSES[DESTINATION]
    create_shop(connection, size, Interrupts())

    def compare() -> None:
        read = lakehouse.reader(root)
        proofs = [prove_table(connection, read, f"shop.{table}") for table in SHOP_TABLES]
        assert all(proof.equal for proof in proofs), f"tables differ from the source: {proofs}"

    return Soaked(
        SHOP_PUBLICATION,
        len(SHOP_TABLES),
        lakehouse.settings(root),
        lambda: Traffic(conninfo, size, per_second=10 * INTENSITY),
        compare,
    )


def configured(root: Path, conninfo: str, soaked: Soaked) -> Path:
    maintenance = {} if DESTINATION == "duckdb" else {"maintenance": _maintenance()}
    return write_config(
        root / "pipeline.yaml",
        conninfo,
        publication_name=soaked.publication,
        destination={"kind": DESTINATION, **soaked.settings, **maintenance},
        spark={"master": "local[2]", "driver_memory": "1g"},
        # A batch every few seconds leaves half a core to others.
        batch={"max_fill_ms": int(4000 / INTENSITY)},
    )


def _maintenance() -> dict[str, float]:
    if DESTINATION == "iceberg":
        return MAINTENANCE
    return {"interval_s": MAINTENANCE["interval_s"]}


def storage_of(root: Path) -> Callable[[], dict[str, float]]:
    """What is stored: files and bytes on disk, and of Iceberg tables the snapshots and files that metadata name."""
    skipped = {root / "data", root / "logs"}

    def measured() -> dict[str, float]:
        sizes = []
        for directory, names, files in os.walk(root):
            names[:] = [name for name in names if Path(directory) / name not in skipped]
            for file in files:
                # Files come and go.
                with contextlib.suppress(FileNotFoundError):
                    sizes.append((Path(directory) / file).stat().st_size)
        return {
            "files": len(sizes),
            "mb": sum(sizes) / 1e6,
            **(_iceberg_storage(root) if DESTINATION == "iceberg" else {}),
        }

    return measured


def _iceberg_storage(root: Path) -> dict[str, float]:
    catalog = lake(root / "warehouse")
    try:
        tables = [
            catalog.load_table(name) for space in catalog.list_namespaces() for name in catalog.list_tables(space)
        ]
        summaries = [table.current_snapshot().summary for table in tables if table.current_snapshot() is not None]
        return {
            "snapshots": sum(len(table.metadata.snapshots) for table in tables),
            "data_files": sum(int(summary["total-data-files"] or 0) for summary in summaries),
        }
    finally:
        catalog.close()


@pytest.fixture
def begin() -> Iterator[Callable[..., Started]]:
    with commands() as start:
        yield start


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(MINUTES * 60 + 2 * SETTLE_S)
def test_nothing_grows_under_mixed_load(
    conninfo: str, connection: Connection, tmp_path: Path, begin: Callable[..., Started]
) -> None:
    left = DIRECTORY / time.strftime("%Y%m%d-%H%M%S")
    left.mkdir(parents=True)
    print(f"soak of {MINUTES:g} minutes into {DESTINATION}, load {LOAD}; samples in {left}", flush=True)
    soaked = {"mixed": mixed, "shop": shop}[LOAD](conninfo, connection, tmp_path)
    running = begin("run", str(configured(tmp_path, conninfo, soaked)), PGPASSWORD=PASSWORD)
    try:
        running.until(lambda: sum('"state": "ready"' in line for line in list(running.err)) >= soaked.tables)
        samples = soak(running, soaked, left, tmp_path)
        until_equal(running, soaked)
    finally:
        (left / "pipeline.log").write_text("".join(running.err))
    running.process.send_signal(signal.SIGTERM)
    assert running.ended() == 0
    soaked.compare()
    assert_nothing_grew(samples, left)


def soak(running: Started, soaked: Soaked, left: Path, root: Path) -> Samples:
    interval_s, rare_s = min(5.0, MINUTES), min(60.0, 3 * MINUTES)
    file, storage = left / "samples.jsonl", storage_of(root)
    with soaked.load(), sampled(running.process.pid, file, storage, interval_s, rare_s) as samples:
        end = time.monotonic() + MINUTES * 60
        while (rest := end - time.monotonic()) > 0 and samples.error is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(min(rest, 1.0))
            assert running.process.poll() is None, f"the pipeline ended:\n{''.join(running.err[-30:])}"
    return samples


def until_equal(running: Started, soaked: Soaked) -> None:
    """Wait until the tables, whole, equal the source's; raise how they differ if they do not become so."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            return soaked.compare()
        except (AssertionError, OSError, duckdb.Error):
            # Not all is applied, a snapshot expired as it was read, or the file is open for writing.
            if time.monotonic() > deadline:
                raise
        assert running.process.poll() is None, f"the pipeline ended:\n{''.join(running.err[-30:])}"
        time.sleep(1)


def assert_nothing_grew(samples: Samples, left: Path) -> None:
    def of(role: str, name: str) -> list[tuple[float, float]]:
        return samples.series("processes", role, name)

    memory = {"driver RSS MB": of("driver", "rss_mb"), "receiver RSS MB": of("receiver", "rss_mb")}
    memory["JVM heap after GC MB"] = samples.series("heap_mb")
    counts = {
        f"{role} {name}": of(role, name)
        for role in ("driver", "receiver", "jvm")
        for name in ("descriptors", "threads")
    }
    reported = {f"{role} {name}": of(role, name) for role in ("workers", "jvm") for name in ("rss_mb", "processes")}
    reported |= {f"{role} anon_mb": of(role, "anon_mb") for role in ("driver", "receiver")}
    reported |= {f"storage {name}": samples.series("storage", name) for name in ("files", "mb")}
    if DESTINATION == "iceberg":
        reported |= {f"storage {name}": samples.series("storage", name) for name in ("snapshots", "data_files")}
    verdict = judge(MINUTES, memory, counts, reported)
    (left / "report.json").write_text(
        json.dumps({"destination": DESTINATION, "load": LOAD, **verdict.as_json()}, indent=2)
    )
    print(f"{verdict}\n{cpu_used(samples)}", flush=True)
    assert not verdict.broken, "these grew:\n" + "\n".join(map(str, verdict.broken))


def cpu_used(samples: Samples) -> str:
    """Cores that each role used on average after the warm-up."""
    parts = []
    for role in ("driver", "receiver", "jvm"):
        series = [point for point in samples.series("processes", role, "cpu_s") if point[0] >= warm_up_s(MINUTES)]
        (first, before), (last, after) = series[0], series[-1]
        parts.append(f"{role} {(after - before) / (last - first):.2f}")
    return "cores used: " + ", ".join(parts)
