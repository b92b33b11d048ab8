"""The initial copy into Parquet files written by the tasks, against `psql \\copy` to /dev/null over one connection."""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

import backlog
from headrace.config.pipeline import PipelineConfig, PipelineMode
from headrace.destinations.batch import EventBatch
from headrace.destinations.contract import DestinationContext, Durability
from headrace.destinations.rows import Rows
from headrace.lsn import Lsn
from headrace.pipeline import Pipeline
from headrace.postgres.conninfo import parse_conninfo
from headrace.schema import ReplicatedTableSchema
from headrace.stores import MemoryStore
from headrace.testing import PostgresServer
from processes import CpuMeter, megabytes

TABLES = ("order_line", "stock", "customer")
# The tables of TPC-C in about its proportions, 2.1 million rows at scale 1.
ROWS = {"order_line": 1_600_000, "stock": 400_000, "customer": 120_000}
FILL = """
INSERT INTO customer SELECT n, n % 10, 1, 'first' || n, 'OE', 'BARBARBAR' || n % 1000, 'street ' || n, 'street two',
  'city', 'ST', '123456789', lpad(n::text, 16, '0'), now(), 'GC', 50000, 0.1234, -10, 10, 1, 0,
  repeat(md5(n::text), 15) FROM generate_series(1, {customer}) n;
INSERT INTO stock SELECT n, 1, n % 100, left(md5('1' || n), 24), left(md5('2' || n), 24), left(md5('3' || n), 24),
  left(md5('4' || n), 24), left(md5('5' || n), 24), left(md5('6' || n), 24), left(md5('7' || n), 24),
  left(md5('8' || n), 24), left(md5('9' || n), 24), left(md5('0' || n), 24), 0, 0, 0, md5(n::text)
  FROM generate_series(1, {stock}) n;
INSERT INTO order_line SELECT n / 100, n / 10 % 10, 1, n % 10, n * 7 % 100000, 1,
  CASE WHEN n % 10 < 7 THEN '2025-01-01'::timestamptz + n * '1 ms'::interval END, 5, n % 999900 / 100.0,
  left(md5(n::text), 24) FROM generate_series(1, {order_line}) n;
CREATE PUBLICATION bench FOR ALL TABLES;
"""


class ParquetFiles:
    """A destination of files: each task writes its own."""

    name = "parquet"
    whole_batches = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self._written: list[int] = []

    @property
    def rows(self) -> int:
        return sum(self._written)

    def startup(self, context: DestinationContext) -> None:
        pass

    def claim(self) -> None:
        pass

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        return None

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        return None

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        pass

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        pass

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        self._written += rows.in_tasks(partial(_write_file, self.root, rows.arrow_schema))
        return Durability.DURABLE

    def write_events(self, batch: EventBatch) -> Durability:
        raise NotImplementedError

    def flush(self) -> None:
        pass

    def shutdown(self) -> None:
        pass


def _write_file(root: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    path = root / f"{secrets.token_hex(8)}.parquet"
    rows = 0
    # Most columns have more values than a dictionary holds: without one, files are smaller and written faster.
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def copy_with_pipeline(spark: Any, conninfo: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory, CpuMeter() as meter:
        config = PipelineConfig(
            id=2,
            publication_name="bench",
            pg_connection=parse_conninfo(conninfo),
            mode=PipelineMode.COPY_ONLY,
            data_dir=Path(directory),
        )
        destination = ParquetFiles(Path(directory))
        with Pipeline(config, MemoryStore(), destination, spark=spark) as pipeline:
            started = time.monotonic()
            pipeline.start()
            pipeline.wait()
            wall = time.monotonic() - started
        size = sum(path.stat().st_size for path in Path(directory).glob("*.parquet"))
    return {"wall": wall, "cpu": meter.seconds(), "rows": destination.rows, "bytes": size, "rss": meter.peak_rss}


def copy_with_psql(server: PostgresServer, conninfo: str) -> float:
    started = time.monotonic()
    commands = [f"--command=\\copy {table} to /dev/null" for table in TABLES]
    subprocess.run(
        [str(server.bin / "psql"), "--no-psqlrc", "--quiet", conninfo, *commands],
        check=True,
        env={**os.environ, "LC_ALL": "C"},
        stdout=subprocess.DEVNULL,
    )
    return time.monotonic() - started


@contextmanager
def filled(scale: float) -> Iterator[tuple[PostgresServer, str, dict[str, int]]]:
    """A server with the tables in it; also its conninfo and how many rows each table has."""
    rows = {table: int(count * scale) for table, count in ROWS.items()}
    settings = {"max_wal_size": "16GB", "synchronous_commit": "off", "shared_buffers": "1GB"}
    with (
        PostgresServer(17, settings=settings) as server,
        server.database("bench") as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
    ):
        connection.execute(backlog.TABLES)
        connection.execute(FILL.format(**rows))
        connection.execute("VACUUM ANALYZE")
        yield server, conninfo, rows


def run(spark: Any, scale: float = 1.0, rounds: int = 3) -> dict[str, Any]:
    peers, ours = [], []
    with filled(scale) as (server, conninfo, rows):
        if rounds > 1:
            # Java compiles what it runs often, with most of a core, for the first few rounds.
            print("  warming up …", [round(copy_with_pipeline(spark, conninfo)["wall"], 2) for _ in range(2)])
        for n in range(rounds):
            peer = copy_with_psql(server, conninfo)
            result = copy_with_pipeline(spark, conninfo)
            assert result["rows"] == sum(rows.values()), result
            print(f"  round {n + 1}: psql {peer:.2f} s, pipeline {result['wall']:.2f} s", result)
            peers.append(peer)
            ours.append(result)
    middle = sorted(ours, key=lambda result: result["wall"])[rounds // 2]
    millions = middle["rows"] / 1e6
    return {
        "rows": middle["rows"],
        "rows_per_s": round(middle["rows"] / middle["wall"]),
        "copy_files_vs_psql_copy": round(statistics.median(p / o["wall"] for p, o in zip(peers, ours, strict=True)), 3),
        "copy_cpu_s_per_million_rows": round(statistics.median(sum(o["cpu"].values()) for o in ours) / millions, 2),
        "cpu_s": middle["cpu"],
        "peak_rss_mb": megabytes(middle["rss"]),
    }
