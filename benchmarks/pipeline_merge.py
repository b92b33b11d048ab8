"""Updates into a large table, of Iceberg and of Delta: our batch and Spark SQL's MERGE of the same rows in turns."""

from __future__ import annotations

import shutil
import statistics
import time
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipeline import Pipeline
from pipeline_batches import APPLYING, AT_ONCE, applied, medians, random_keys, tables, update
from pipeline_lakehouse import KeyRange, Lakehouse, streaming
from pipeline_sizes import Sizes
from processes import CpuMeter

__all__ = ["run"]

TABLE, NAMESPACE = "merged", "merge"
ROWS = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("n", pa.decimal128(12, 2)), ("at", pa.timestamp("us", "UTC"))]
)
PARTITIONS = 4
_Compared = tuple[dict[str, Any], dict[str, Any]]
"""By number of updates: ratios, and the figures they are made of."""
MERGE = """MERGE INTO {table} t USING changes s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""


def merged_by_spark(lakehouse: Lakehouse, table: str, rows: pa.Table) -> dict[str, float]:
    """Wall and CPU seconds from rows in the driver's memory to a committed snapshot."""
    with CpuMeter(interval_s=1) as meter:
        started = time.monotonic()
        lakehouse.spark.createDataFrame(rows).createOrReplaceTempView("changes")
        lakehouse.spark.sql(MERGE.format(table=table))
        wall = time.monotonic() - started
    cpu = meter.seconds()
    return {"wall_s": wall, "cpu_s": sum(cpu.get(role, 0.0) for role in APPLYING)}


def rows_of(connection: psycopg.Connection[Any], keys: list[int]) -> pa.Table:
    found = connection.execute(f"SELECT id, v, n, at FROM {TABLE} WHERE id = ANY(%s)", (keys,)).fetchall()
    return pa.table([pa.array(column, field.type) for column, field in zip(zip(*found), ROWS)], ROWS)  # noqa: B905


def run(lakehouse: Lakehouse, sizes: Sizes) -> dict[str, Any]:
    ratios, results = {}, {}
    for kind, compared in {"iceberg": _iceberg, "delta": _delta}.items():
        with tables(lakehouse.server, [TABLE], sizes.merge_rows) as (conninfo, connection):
            ratios[kind], results[kind] = compared(lakehouse, sizes, conninfo, connection)
    return {
        "merge_vs_spark_merge": ratios["iceberg"],
        "delta_merge_vs_spark_merge": ratios["delta"],
        "merge": {"rows": sizes.merge_rows, **results["iceberg"]},
        "delta_merge": {"rows": sizes.merge_rows, **results["delta"]},
    }


def _iceberg(lakehouse: Lakehouse, sizes: Sizes, conninfo: str, connection: psycopg.Connection[Any]) -> _Compared:
    copied = _copied(lakehouse, sizes, conninfo)
    lakehouse.create_peer_namespace(NAMESPACE)
    peer = lakehouse.create_peer_table(NAMESPACE, TABLE, copied.schema)
    copied.writeTo(peer).append()
    with streaming(lakehouse, conninfo, NAMESPACE, **AT_ONCE) as pipeline:
        found = _compared(lakehouse, sizes, connection, pipeline, peer)
    counts = lakehouse.count(NAMESPACE, TABLE), lakehouse.spark.table(peer).count()
    assert counts == (sizes.merge_rows, sizes.merge_rows), counts
    lakehouse.forget(NAMESPACE)
    return found


def _delta(lakehouse: Lakehouse, sizes: Sizes, conninfo: str, connection: psycopg.Connection[Any]) -> _Compared:
    root = lakehouse.root / "merge_delta"
    ours, peer = root / "ours", root / "peer"
    copied = _copied(lakehouse, sizes, conninfo)
    copied.write.format("delta").option("delta.enableDeletionVectors", "true").save(str(peer))
    destination = {"kind": "delta", "warehouse": str(ours), "namespace": NAMESPACE}
    with streaming(lakehouse, conninfo, f"{NAMESPACE}_delta", destination=destination, **AT_ONCE) as pipeline:
        found = _compared(lakehouse, sizes, connection, pipeline, f"delta.`{peer}`")
    tables = (ours / NAMESPACE / TABLE, peer)
    counts = [lakehouse.spark.read.format("delta").load(str(table)).count() for table in tables]
    assert counts == [sizes.merge_rows] * 2, counts
    shutil.rmtree(root)
    return found


def _copied(lakehouse: Lakehouse, sizes: Sizes, conninfo: str) -> DataFrame:
    return lakehouse.read_by_jdbc(conninfo, TABLE, KeyRange("id", 1, sizes.merge_rows), PARTITIONS)


def _compared(
    lakehouse: Lakehouse, sizes: Sizes, connection: psycopg.Connection[Any], pipeline: Pipeline, peer: str
) -> _Compared:
    ratios, results = {}, {}
    random = np.random.default_rng(5)
    for count in sizes.merge_updates:
        ours, sparks = [], []
        for _ in range(sizes.warm_ups + sizes.merge_batches):
            keys = random_keys(random, sizes.merge_rows, count)
            ours.append(applied(pipeline, count, lambda keys=keys: update(connection, TABLE, keys)))
            sparks.append(merged_by_spark(lakehouse, peer, rows_of(connection, keys)))
        own, spark = medians(ours[sizes.warm_ups :]), _medians(sparks[sizes.warm_ups :])
        print(f"  {count} updates: pipeline {own}, Spark MERGE {spark}")
        results[str(count)] = {"headrace": own, "spark_merge": spark}
        ratios[str(count)] = {
            "wall": round(spark["wall_s"] / own["write_s"], 2),
            "cpu": round(own["cpu_s"] / spark["cpu_s"], 2),
        }
    return ratios, results


def _medians(merges: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(merge[name] for merge in merges), 3) for name in merges[0]}
