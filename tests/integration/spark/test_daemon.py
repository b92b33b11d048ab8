"""Workers forked from our daemon: what they find imported, and that what was imported works after the fork."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from headrace.spark.jobs import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_find_the_decoder_imported_and_keep_their_caches(spark: SparkSession) -> None:
    def worker(_work: int) -> tuple[str, list[str], bool]:
        import os
        import sys
        import zipimport
        from pathlib import Path

        names = ("pandas", "asyncpg", "headrace.pgoutput.columnar", "headrace.initial_copy.reader")
        names += ("headrace.destinations.lake.merge", "headrace.destinations.lake.quarantine")
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_text()
        missing = [name for name in names if name not in sys.modules]
        return parent, missing, zipimport.zipimporter.invalidate_caches.__qualname__ == "_keep_caches"

    [(parent, missing, kept)] = run_tasks(spark, [0], worker, description="worker")
    assert "headrace.spark.daemon" in parent
    assert missing == []
    assert kept


def test_arrow_threads_work_after_the_fork(spark: SparkSession) -> None:
    def threads(work: int) -> tuple[int, int, int]:
        rows = 200_000
        text = "\n".join(["id,v", *(f"{i},{i * work}" for i in range(rows))]).encode()
        options = pa.csv.ReadOptions(use_threads=True, block_size=1 << 16)
        table = pa.csv.read_csv(pa.BufferReader(text), read_options=options)
        taken = table.take(pa.array(np.arange(rows)[::-1])).sort_by("id")
        grouped = taken.group_by("v", use_threads=True).aggregate([("id", "sum")])
        return table.num_rows, pc.sum(taken.column("v")).as_py(), grouped.num_rows

    expected = [(200_000, work * sum(range(200_000)), 200_000) for work in (1, 2, 3)]
    assert run_tasks(spark, [1, 2, 3], threads, description="threads") == expected


def test_connections_work_after_the_fork(spark: SparkSession, conninfo: str) -> None:
    import psycopg.conninfo

    parameters = psycopg.conninfo.conninfo_to_dict(conninfo)

    def asks(work: int) -> int:
        import asyncpg

        async def ask() -> int:
            connection = await asyncpg.connect(
                host=parameters["host"],
                port=int(parameters["port"] or 0),
                user=parameters["user"],
                password=parameters.get("password"),
                database=parameters["dbname"],
            )
            try:
                return await connection.fetchval("SELECT $1::int * 2", work)
            finally:
                await connection.close()

        return asyncio.run(ask())

    assert run_tasks(spark, [1, 2, 3, 4], asks, description="asks") == [2, 4, 6, 8]
