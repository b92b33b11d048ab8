"""Reading a table to typed Arrow with `read_range` against `psql \\copy … to /dev/null`, in the same run.

The table is TPC-C's order_line. psql throws the rows away; the reader has them as Arrow record batches. CPU seconds are
the client's and the server's apart. Run alone, it prints the figures:

    python benchmarks/initial_copy.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
import psycopg

from headrace.config.connection import PgConnectionConfig
from headrace.initial_copy.plan import plan_copy
from headrace.initial_copy.ranges import CopyPlan, CopyRange
from headrace.initial_copy.reader import copy_columns, read_range
from headrace.pgtypes.contract import Conversion
from headrace.postgres.conninfo import parse_conninfo
from headrace.postgres.publications import published_tables
from headrace.postgres.snapshots import export_snapshot
from headrace.testing import PostgresServer

ROWS, QUICK_ROWS = 1_000_000, 200_000
SCHEMA = """
CREATE TABLE order_line (
  ol_o_id int, ol_d_id int, ol_w_id int, ol_number int, ol_i_id int, ol_supply_w_id int, ol_delivery_d timestamptz,
  ol_quantity int, ol_amount numeric(6,2), ol_dist_info char(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
INSERT INTO order_line SELECT n / 100, n / 10 % 10, 1, n % 10, n * 7 % 100000, 1,
  CASE WHEN n % 10 < 7 THEN '2025-01-01'::timestamptz + n * '1 ms'::interval END, 5, n % 999900 / 100.0,
  left(md5(n::text), 24)
  FROM generate_series(1, {rows}) n;
VACUUM ANALYZE order_line;
CREATE PUBLICATION bench FOR ALL TABLES;
"""

Columns = tuple[tuple[str, Conversion], ...]
Timing = dict[str, float]


def own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def server_cpu(server: PostgresServer) -> float:
    """Of the backends that ended: those measured have, or do so within a moment of their client."""
    postmaster = psutil.Process(int((server.data / "postmaster.pid").read_text().split()[0]))
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        others = (
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        while connection.execute(others).fetchone() != (0,):
            time.sleep(0.01)
    times = postmaster.cpu_times()
    return times.children_user + times.children_system


def read_all(config: PgConnectionConfig, part: CopyRange, columns: Columns, snapshot: str) -> tuple[int, float]:
    """Rows, and the CPU seconds of this process for them."""
    before = own_cpu()
    rows = sum(batch.rows.num_rows for batch in read_range(config, part, columns, snapshot_name=snapshot))
    return rows, own_cpu() - before


def with_reader(pool: ProcessPoolExecutor, config: PgConnectionConfig, plan: CopyPlan) -> tuple[int, float]:
    with export_snapshot(config) as held:
        columns = copy_columns(plan.schema)
        parts = [pool.submit(read_all, config, part, columns, held.name) for part in plan.ranges]
        done = [part.result() for part in parts]
    return sum(rows for rows, _ in done), sum(cpu for _, cpu in done)


def with_psql(server: PostgresServer, conninfo: str) -> tuple[int, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = "\\copy order_line to '/dev/null'"
    done = subprocess.run(
        [str(server.bin / "psql"), conninfo, "-X", "-c", command], check=True, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return int(done.stdout.split()[-1]), cpu


def timed(server: PostgresServer, run: Callable[[], tuple[int, float]]) -> Timing:
    on_server, started = server_cpu(server), time.monotonic()
    rows, cpu = run()
    wall = time.monotonic() - started
    return {"rows": rows, "wall_s": wall, "client_cpu_s": cpu, "server_cpu_s": server_cpu(server) - on_server}


@contextmanager
def source(rows: int) -> Iterator[tuple[PostgresServer, str, CopyPlan]]:
    settings = {"shared_buffers": "512MB", "max_wal_size": "8GB"}
    with PostgresServer(settings=settings) as server, server.database("bench") as conninfo:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for statement in SCHEMA.format(rows=rows).split(";\n"):
                if statement:
                    connection.execute(statement)
            (schema,) = published_tables(connection, "bench")
            plan = plan_copy(connection, schema)
        yield server, conninfo, plan


def measure(rows: int = ROWS, rounds: int = 3) -> dict[str, Any]:
    """Medians; the contestants alternate, so that a slow spell of the machine hits all."""
    timings: dict[str, list[Timing]] = {"psql": [], "reader_1": [], "reader_2": []}
    context = multiprocessing.get_context("forkserver")
    with (
        source(rows) as (server, conninfo, plan),
        ProcessPoolExecutor(1, mp_context=context) as one,
        ProcessPoolExecutor(2, mp_context=context) as two,
    ):
        config = parse_conninfo(conninfo)
        for pool in (one, two):
            with_reader(pool, config, plan)  # starts the processes, imports, and warms the server's cache
        for _ in range(rounds):
            timings["psql"].append(timed(server, lambda: with_psql(server, conninfo)))
            timings["reader_1"].append(timed(server, lambda: with_reader(one, config, plan)))
            timings["reader_2"].append(timed(server, lambda: with_reader(two, config, plan)))
    return summary(timings, rows, len(plan.ranges))


def summary(timings: dict[str, list[Timing]], rows: int, ranges: int) -> dict[str, Any]:
    result: dict[str, Any] = {"rows": rows, "ranges": ranges, "cpus": os.cpu_count()}
    for name, rounds in timings.items():
        assert all(timing["rows"] == rows for timing in rounds)
        middle = {key: statistics.median(timing[key] for timing in rounds) for key in rounds[0]}
        result[f"{name}_rows_per_s"] = round(rows / middle["wall_s"])
        for side in ("client", "server"):
            result[f"{name}_{side}_cpu_s_per_million"] = round(middle[f"{side}_cpu_s"] / rows * 1e6, 2)
    for name in ("reader_1", "reader_2"):
        ratios = [p["wall_s"] / o["wall_s"] for p, o in zip(timings["psql"], timings[name], strict=True)]
        result[f"{name}_vs_psql_copy"] = round(statistics.median(ratios), 2)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, one round")
    quick = parser.parse_args().quick
    print(json.dumps(measure(QUICK_ROWS, 1) if quick else measure(), indent=2))
