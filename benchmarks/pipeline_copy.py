"""The initial copy into Iceberg, beside `psql \\copy` to /dev/null and beside Spark's own JDBC reader into Iceberg."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg

from engine_copy import TABLES, copy_with_psql, filled
from headrace.config.pipeline import PipelineMode
from headrace.testing import PostgresServer
from pipeline_lakehouse import PEER, KeyRange, Lakehouse
from pipeline_sizes import Sizes
from processes import CpuMeter, megabytes

__all__ = ["run"]

WARM_ROWS = 10_000
KEYS = {"order_line": "ol_o_id", "stock": "s_i_id", "customer": "c_id"}


@dataclass(frozen=True, slots=True)
class Copied:
    wall: float
    cpu: Mapping[str, float]
    rss: Mapping[str, int]
    ranges: Mapping[str, int]

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu.values())


def copy_with_pipeline(lakehouse: Lakehouse, conninfo: str, namespace: str) -> Copied:
    config = lakehouse.config(conninfo, namespace, mode=PipelineMode.COPY_ONLY)
    with CpuMeter() as meter, lakehouse.pipeline(config) as pipeline:
        started = time.monotonic()
        pipeline.start()
        pipeline.wait()
        wall = time.monotonic() - started
        ranges = {table.name.partition(".")[2]: table.copy.ranges for table in pipeline.status.tables.values()}
    return Copied(wall, meter.seconds(), meter.peak_rss, ranges)


def key_ranges(conninfo: str) -> dict[str, KeyRange]:
    with psycopg.connect(conninfo) as connection:
        return {
            table: KeyRange(key, *connection.execute(f"SELECT min({key}), max({key}) FROM {table}").fetchall()[0])
            for table, key in KEYS.items()
        }


def copy_with_jdbc(
    lakehouse: Lakehouse, conninfo: str, namespace: str, keys: Mapping[str, KeyRange], ranges: Mapping[str, int]
) -> Copied:
    """All tables side by side, as ours are, so that no core waits for the last range of a table."""

    def copy(table: str) -> None:
        rows = lakehouse.read_by_jdbc(conninfo, table, keys[table], ranges[table])
        rows.writeTo(lakehouse.create_peer_table(namespace, table, rows.schema)).append()

    lakehouse.create_peer_namespace(namespace)
    with CpuMeter() as meter, ThreadPoolExecutor(len(TABLES)) as threads:
        started = time.monotonic()
        list(threads.map(copy, keys))
        wall = time.monotonic() - started
    return Copied(wall, meter.seconds(), meter.peak_rss, ranges)


def warm_up(lakehouse: Lakehouse, server: PostgresServer, tables: int) -> None:
    """Copy many small tables, by both sides; not so small that the driver reads them itself, without Spark."""
    names = [f"small_{n}" for n in range(tables)]
    with server.database("warm") as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, a text, b numeric(10, 2), c timestamptz)")
            connection.execute(f"INSERT INTO {name} SELECT i, i, i, now() FROM generate_series(1, {WARM_ROWS}) i")
        connection.execute("CREATE PUBLICATION bench FOR ALL TABLES")
        for n in range(2):
            own = copy_with_pipeline(lakehouse, conninfo, f"warm_{n}")
            keys = {name: KeyRange("id", 1, WARM_ROWS) for name in names}
            jdbc = copy_with_jdbc(lakehouse, conninfo, f"warm_{n}", keys, own.ranges)
            print(f"  warming up with {tables} small tables: pipeline {_shown(own)}, JDBC {_shown(jdbc)}")
            lakehouse.forget(f"warm_{n}")


def run(lakehouse: Lakehouse, sizes: Sizes) -> dict[str, Any]:
    peers, ours, by_jdbc = [], [], []
    with filled(sizes.copy_scale) as (server, conninfo, rows):
        keys = key_ranges(conninfo)
        if sizes.warm_tables:
            warm_up(lakehouse, server, sizes.warm_tables)
        for n in range(-sizes.copy_warm_ups, sizes.copy_rounds):
            psql = copy_with_psql(server, conninfo)
            namespace = f"copy_{n + sizes.copy_warm_ups}"
            own = copy_with_pipeline(lakehouse, conninfo, namespace)
            jdbc = copy_with_jdbc(lakehouse, conninfo, namespace, keys, own.ranges)
            name = f"round {n + 1}" if n >= 0 else "warming up"
            print(f"  {name}: psql {psql:.2f} s, pipeline {_shown(own)}, JDBC {_shown(jdbc)}")
            _check(lakehouse, namespace, rows)
            lakehouse.forget(namespace)
            if n >= 0:
                peers.append(psql)
                ours.append(own)
                by_jdbc.append(jdbc)
    total = sum(rows.values())
    middle = sorted(ours, key=lambda copied: copied.wall)[len(ours) // 2]
    pairs = list(zip(ours, by_jdbc, strict=True))
    return {
        "copy_iceberg_vs_psql_copy": _median(psql / own.wall for psql, own in zip(peers, ours, strict=True)),
        "copy_iceberg_vs_jdbc": _median(jdbc.wall / own.wall for own, jdbc in pairs),
        "copy_cpu_vs_jdbc": _median(own.cpu_s / jdbc.cpu_s for own, jdbc in pairs),
        "copy": {
            "rows": total,
            "rows_per_s": round(total / middle.wall),
            "psql_rows_per_s": round(total / statistics.median(peers)),
            "jdbc_rows_per_s": round(total / statistics.median(jdbc.wall for jdbc in by_jdbc)),
            "ranges": middle.ranges,
            "cpu_s": middle.cpu,
            "jdbc_cpu_s": sorted(by_jdbc, key=lambda copied: copied.cpu_s)[len(by_jdbc) // 2].cpu,
            "cpu_s_per_million_rows": round(middle.cpu_s / total * 1e6, 2),
            "peak_memory_mb": megabytes(middle.rss),
        },
    }


def _check(lakehouse: Lakehouse, namespace: str, rows: Mapping[str, int]) -> None:
    for table, count in rows.items():
        found = lakehouse.count(namespace, table)
        peer = lakehouse.spark.table(f"{PEER}.{namespace}.{table}").count()
        assert (found, peer) == (count, count), f"{table} has {count} rows, our copy {found}, the peer's {peer}"


def _shown(copied: Copied) -> str:
    return f"{copied.wall:.2f} s (CPU {copied.cpu_s:.1f} s)"


def _median(ratios: Any) -> float:
    return round(statistics.median(ratios), 3)
