"""Draining a backlog of changes into Iceberg, against `pg_recvlogical` on the same backlog."""

from __future__ import annotations

import statistics
from typing import Any

import psycopg

from backlog import backlog
from engine_copy import TABLES
from engine_stream import drained
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from pipeline_lakehouse import Lakehouse
from pipeline_sizes import Sizes
from processes import CpuMeter, megabytes
from receiver import drain_with_pg_recvlogical
from waiting import until_ready

__all__ = ["run"]


class Drain:
    """A pipeline that copies the tables before the backlog grows, stops, and later drains it."""

    def __init__(self, lakehouse: Lakehouse, number: int) -> None:
        self._lakehouse, self._name, self._store = lakehouse, f"drain_{number}", MemoryStore()

    def copy(self, conninfo: str) -> None:
        with self._pipeline(conninfo) as pipeline:
            pipeline.start()
            until_ready(pipeline)

    def drain(self, conninfo: str, end: Lsn) -> dict[str, Any]:
        with CpuMeter() as meter, self._pipeline(conninfo) as pipeline:
            received, wall = drained(pipeline, end)
            changes = sum(table.changes for table in pipeline.status.tables.values())
        return {"wall": wall, "received": received, "changes": changes, "cpu": meter.seconds(), "rss": meter.peak_rss}

    def check(self, conninfo: str) -> None:
        with psycopg.connect(conninfo) as connection:
            for table in TABLES:
                row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
                found = self._lakehouse.count(self._name, table)
                assert row == (found,), f"{table} has {row} rows, our copy {found}"
        self._lakehouse.forget(self._name)

    def _pipeline(self, conninfo: str) -> Any:
        config = self._lakehouse.config(conninfo, self._name, slot_name=self._name)
        return self._lakehouse.pipeline(config, self._store)


def run(lakehouse: Lakehouse, sizes: Sizes) -> dict[str, Any]:
    rounds = sizes.rounds
    drains = [Drain(lakehouse, n) for n in range(rounds)]

    def copy(conninfo: str) -> None:
        for drain in drains:
            drain.copy(conninfo)

    peers, peer_cpus, ours = [], [], []
    with backlog(sizes.backlog, [f"peer_{n}" for n in range(rounds)], before_load=copy) as (server, conninfo, end):
        for n, drain in enumerate(drains):
            with CpuMeter() as meter:
                peer, _ = drain_with_pg_recvlogical(server, conninfo, f"peer_{n}", end)
            own = drain.drain(conninfo, end)
            assert own["changes"] >= sizes.backlog // 21 * 21, own
            drain.check(conninfo)
            print(f"  round {n + 1}: pg_recvlogical {peer:.2f} s, pipeline {own['wall']:.2f} s", own["cpu"])
            peers.append(peer)
            peer_cpus.append(meter.seconds())
            ours.append(own)
    middle = sorted(ours, key=lambda own: own["wall"])[rounds // 2]
    return {
        "stream_iceberg_vs_pg_recvlogical": _median(p / o["wall"] for p, o in zip(peers, ours, strict=True)),
        "stream": {
            "changes": middle["changes"],
            "changes_per_s": round(middle["changes"] / middle["wall"]),
            "pg_recvlogical_changes_per_s": round(middle["changes"] / statistics.median(peers)),
            "received_vs_pg_recvlogical": _median(p / o["received"] for p, o in zip(peers, ours, strict=True)),
            "cpu_s": middle["cpu"],
            "pg_recvlogical_cpu_s": peer_cpus[rounds // 2],
            "peak_memory_mb": megabytes(middle["rss"]),
        },
    }


def _median(ratios: Any) -> float:
    return round(statistics.median(ratios), 3)
