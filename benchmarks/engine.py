"""`make bench-engine`: the pipeline on Spark, side by side with Postgres's own tools in one run, on a warm session.

Writes benchmarks/results/engine.json. Ratios matter; absolutes are this machine's. Bars are what the project holds
itself to; a missed one is reported and ends the run with an error.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
from pathlib import Path
from typing import Any

import structlog

import engine_copy
import engine_fixed
import engine_stream
from headrace.config.spark import SparkConfig
from headrace.spark.session import build_session

RESULTS = Path(__file__).with_name("results") / "engine.json"
CHANGES, QUICK_CHANGES = 2_000_000, 200_000

AT_LEAST = {"stream_noop_vs_pg_recvlogical": 0.7, "copy_files_vs_psql_copy": 0.6}
AT_MOST = {"copy_cpu_s_per_million_rows": 4.5, "one_row_8_tables_s": 1.5}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small data, nothing written, no bars")
    quick = parser.parse_args().quick
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    here = str(Path(__file__).parent)
    spark = build_session(SparkConfig(master="local[2]", conf={"spark.executorEnv.PYTHONPATH": here}))
    spark.range(10).count()
    print("fixed cost of a batch …")
    fixed = engine_fixed.run(spark, (1, 8) if quick else (1, 8, 50))
    print("initial copy into Parquet files …")
    copied = engine_copy.run(spark, 0.05 if quick else 1.0, 1 if quick else 3)
    print("drain of a backlog …")
    streamed = engine_stream.run(spark, QUICK_CHANGES if quick else CHANGES, 1 if quick else 3)
    spark.stop()
    result: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "stream_noop_vs_pg_recvlogical": streamed.pop("stream_noop_vs_pg_recvlogical"),
        "copy_files_vs_psql_copy": copied.pop("copy_files_vs_psql_copy"),
        "copy_cpu_s_per_million_rows": copied.pop("copy_cpu_s_per_million_rows"),
        "one_row_8_tables_s": fixed["spark-noop"]["8"]["one_row_s"],
        "stream": streamed,
        "copy": copied,
        "fixed": fixed,
    }
    print(json.dumps(result, indent=2))
    if quick:
        return 0
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return report_missed(result)


def report_missed(result: dict[str, Any]) -> int:
    low = {name: (result[name], bar) for name, bar in AT_LEAST.items() if result[name] < bar}
    high = {name: (result[name], bar) for name, bar in AT_MOST.items() if result[name] > bar}
    for name, (value, bar) in {**low, **high}.items():
        print(f"missed: {name} is {value}, the bar is {bar}")
    return 1 if low or high else 0


if __name__ == "__main__":
    sys.exit(main())
