"""Draining a backlog into a destination that decodes everything and keeps nothing, against `pg_recvlogical`."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from backlog import backlog
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.null import NullDestination
from headrace.lsn import Lsn
from headrace.pipeline import Pipeline
from headrace.postgres.conninfo import parse_conninfo
from headrace.postgres.publications import published_tables
from headrace.stores import APPLY, MemoryStore
from headrace.table_state import State, TableState
from processes import CpuMeter, megabytes
from receiver import drain_with_pg_recvlogical
from waiting import until


def streaming_store(conninfo: str, slot: str) -> MemoryStore:
    """A store in which every table stands Ready where the slot begins: nothing is copied."""
    store = MemoryStore()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
        row = connection.execute(query, (slot,)).fetchone()
        assert row is not None
        start = Lsn.parse(row[0])
        for schema in published_tables(connection, "bench"):
            store.store_table_schema(schema, Lsn(0))
            path = [State.INIT, State.DATA_SYNC, State.FINISHED_COPY, State.SYNC_DONE, State.READY]
            for state in path:
                lsn = start if state is State.SYNC_DONE else None
                store.update_table_states({schema.table.id: TableState(state, lsn)})
    store.update_progress(APPLY, start)
    return store


def drain(spark: Any, conninfo: str, slot: str, end: Lsn) -> dict[str, Any]:
    """Wall seconds from the first message to the last change applied, CPU seconds by process, changes seen."""
    with tempfile.TemporaryDirectory() as directory, CpuMeter() as meter:
        config = PipelineConfig(
            id=1,
            publication_name="bench",
            pg_connection=parse_conninfo(conninfo),
            slot_name=slot,
            data_dir=Path(directory),
        )
        destination = NullDestination()
        with Pipeline(config, streaming_store(conninfo, slot), destination, spark=spark) as pipeline:
            received, wall = drained(pipeline, end)
    changes = sum(destination.counts(f"public.{table}").changes for table in ("customer", "stock", "order_line"))
    return {"wall": wall, "received": received, "cpu": meter.seconds(), "changes": changes, "rss": meter.peak_rss}


def drained(pipeline: Pipeline, end: Lsn) -> tuple[float, float]:
    """Start it and wait: seconds from the first message until all is received, and until all is applied."""
    pipeline.start()
    until(pipeline, lambda s: s.receiver.state == "streaming")
    started = time.monotonic()
    until(pipeline, lambda s: s.receiver.covered >= end)
    received = time.monotonic() - started
    until(pipeline, lambda s: s.applied >= s.receiver.spooled)
    return received, time.monotonic() - started


def run(spark: Any, changes: int, rounds: int = 3) -> dict[str, Any]:
    """Alternate the two, so that a slow spell of the machine hits both."""
    slots = [f"{kind}_{n}" for n in range(rounds) for kind in ("peer", "ours")]
    peers, ours = [], []
    with backlog(changes, slots) as (server, conninfo, end):
        for n in range(rounds):
            peer, _ = drain_with_pg_recvlogical(server, conninfo, f"peer_{n}", end)
            result = drain(spark, conninfo, f"ours_{n}", end)
            assert result["changes"] >= changes // 21 * 21, result
            print(f"  round {n + 1}: pg_recvlogical {peer:.2f} s, pipeline {result['wall']:.2f} s", result)
            peers.append(peer)
            ours.append(result)
    middle = sorted(ours, key=lambda result: result["wall"])[rounds // 2]
    return {
        "changes": middle["changes"],
        "pg_recvlogical_changes_per_s": round(middle["changes"] / statistics.median(peers)),
        "changes_per_s": round(middle["changes"] / middle["wall"]),
        "stream_noop_vs_pg_recvlogical": round(
            statistics.median(p / o["wall"] for p, o in zip(peers, ours, strict=True)), 3
        ),
        "received_vs_pg_recvlogical": round(
            statistics.median(p / o["received"] for p, o in zip(peers, ours, strict=True)), 3
        ),
        "cpu_s": middle["cpu"],
        "peak_rss_mb": megabytes(middle["rss"]),
    }


if __name__ == "__main__":
    from headrace.config.spark import SparkConfig
    from headrace.spark.session import build_session

    session = build_session(SparkConfig(master="local[2]"))
    print(run(session, 400_000, 1))
    session.stop()
