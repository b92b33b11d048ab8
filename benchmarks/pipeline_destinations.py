"""The destinations beside each other, in one run: initial copy, drain of a backlog, and freshness.

Freshness is told by the pipeline itself here, for destinations have no reader in common: from a transaction's commit at
the source until its table's position is durable beyond it. `pipeline_freshness` has Iceberg's as others see it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from backlog import CHANGES_PER_TRANSACTION, backlog
from engine_copy import filled
from engine_stream import drained
from headrace.config.pipeline import PipelineMode
from headrace.lsn import Lsn
from headrace.pipeline import Pipeline
from headrace.stores import MemoryStore
from pipeline_batches import tables
from pipeline_freshness import CHURN, CLOCK, Writer, freshness, percentiles, read_commits
from pipeline_lakehouse import Lakehouse, streaming
from pipeline_sizes import Sizes
from processes import CpuMeter
from waiting import until, until_ready

__all__ = ["DESTINATIONS", "run"]

POLL_S = 0.01
TABLES = 8

DESTINATIONS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "iceberg": lambda root: {"warehouse": str(root / "warehouse")},
    "delta": lambda root: {"warehouse": str(root / "warehouse")},
    "duckdb": lambda root: {"database": str(root / "bench.duckdb")},
    "ducklake": lambda root: {
        "catalog": {"type": "sqlite", "uri": str(root / "lake.sqlite")},
        "data_path": str(root / "data"),
    },
    "parquet": lambda root: {"location": str(root / "log")},
}


class Settings:
    """Places of their own for each use of a destination."""

    def __init__(self, lakehouse: Lakehouse, kind: str) -> None:
        self._lakehouse, self._kind, self._uses = lakehouse, kind, 0

    def fresh(self) -> dict[str, Any]:
        self._uses += 1
        root = self._lakehouse.root / "destinations" / f"{self._kind}_{self._uses}"
        root.mkdir(parents=True)
        return {"destination": {"kind": self._kind, **DESTINATIONS[self._kind](root)}, "data_dir": root / "pipeline"}


def copy(lakehouse: Lakehouse, sizes: Sizes, settings: dict[str, Settings]) -> dict[str, dict[str, Any]]:
    """Rounds of all destinations in turn; of each the median."""
    walls: dict[str, list[tuple[float, float]]] = {kind: [] for kind in settings}
    with filled(sizes.destination_scale) as (_, conninfo, rows):
        for n in range(-1 if sizes.warm_ups else 0, sizes.rounds):
            for kind, given in settings.items():
                config = lakehouse.config(conninfo, kind, mode=PipelineMode.COPY_ONLY, **given.fresh())
                with CpuMeter() as meter, lakehouse.pipeline(config) as pipeline:
                    started = time.monotonic()
                    pipeline.start()
                    pipeline.wait()
                    wall = time.monotonic() - started
                if n >= 0:
                    walls[kind].append((wall, sum(meter.seconds().values())))
    total = sum(rows.values())
    found = {}
    for kind, rounds in walls.items():
        wall, cpu = sorted(rounds)[len(rounds) // 2]
        found[kind] = {
            "copy_rows_per_s": round(total / wall),
            "copy_cpu_s_per_million_rows": round(cpu / total * 1e6, 2),
        }
    return found


def drain(lakehouse: Lakehouse, sizes: Sizes, settings: dict[str, Settings]) -> dict[str, dict[str, Any]]:
    """Each drains the same backlog from a slot of its own, behind a copy of the tables as they were before it."""
    changes = sizes.destination_backlog // CHANGES_PER_TRANSACTION * CHANGES_PER_TRANSACTION
    pipelines: dict[str, Callable[[], Pipeline]] = {}

    def copied(conninfo: str) -> None:
        for kind, given in settings.items():
            config = lakehouse.config(conninfo, kind, slot_name=f"drain_{kind}", **given.fresh())
            store = MemoryStore()
            pipelines[kind] = lambda config=config, store=store: lakehouse.pipeline(config, store)
            with pipelines[kind]() as pipeline:
                pipeline.start()
                until_ready(pipeline)

    found = {}
    with backlog(sizes.destination_backlog, [], before_load=copied) as (_, _, end):
        for kind, opened in pipelines.items():
            with CpuMeter() as meter, opened() as pipeline:
                _, wall = drained(pipeline, end)
                applied = sum(table.changes for table in pipeline.status.tables.values())
            assert applied >= changes, f"{kind} applied {applied} of {changes} changes"
            found[kind] = {
                "drain_changes_per_s": round(changes / wall),
                "drain_cpu_s_per_million_changes": round(sum(meter.seconds().values()) / changes * 1e6, 2),
            }
    return found


@contextmanager
def watching(pipeline: Pipeline) -> Iterator[dict[str, list[tuple[float, int]]]]:
    """When each table's position was first seen where it is."""
    seen: dict[str, list[tuple[float, int]]] = {}
    stop = threading.Event()

    def watch() -> None:
        more = True
        while more:
            # What is there when the block ends is still noted.
            more = not stop.wait(POLL_S)
            now = time.time()
            for table in pipeline.status.tables.values():
                noted = seen.setdefault(table.name.partition(".")[2], [])
                if not noted or noted[-1][1] != int(table.position):
                    noted.append((now, int(table.position)))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def fresh(lakehouse: Lakehouse, sizes: Sizes, kind: str, given: Settings) -> dict[str, Any]:
    names = [f"t{n}" for n in range(TABLES)]
    with tables(lakehouse.server, names, sizes.fresh_rows) as (conninfo, connection):
        connection.execute(CHURN)
        with streaming(lakehouse, conninfo, kind, **given.fresh()) as pipeline, watching(pipeline) as seen:
            with Writer(conninfo, names, sizes, append=False):
                time.sleep(sizes.destination_seconds / 3)
                connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (CLOCK,))
                time.sleep(sizes.destination_seconds)
            row = connection.execute("SELECT pg_logical_emit_message(true, 'bench', 'end')::text").fetchone()
            assert row is not None
            end = Lsn.parse(row[0])
            until(pipeline, lambda s: all(table.position > end for table in s.tables.values()))
        commits = read_commits(connection)
    seconds = np.concatenate([freshness(commits[name], seen[name]) for name in names])
    return {f"freshness_{name}_s": value for name, value in percentiles(seconds).items()}


def run(lakehouse: Lakehouse, sizes: Sizes) -> dict[str, Any]:
    settings = {kind: Settings(lakehouse, kind) for kind in DESTINATIONS}
    copies = copy(lakehouse, sizes, settings)
    drains = drain(lakehouse, sizes, settings)
    found = {}
    for kind, given in settings.items():
        found[kind] = {**copies[kind], **drains[kind], **fresh(lakehouse, sizes, kind, given)}
        print(f"  {kind}: {found[kind]}")
    return {"destinations": found}
