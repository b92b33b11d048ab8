"""From SparkConfig to Spark's own settings: what Headrace chooses, and why. No Spark in here."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from ..config.spark import SparkConfig

__all__ = ["FASTER", "is_local", "spark_master", "spark_settings"]

FASTER = {
    # A tiny Python job costs 300-400 ms without these two and 75-100 ms with them: see daemon.py, and Spark's loopback
    # TCP between JVM and worker waits for delayed acknowledgements.
    "spark.python.daemon.module": "headrace.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    # The tables of a batch run side by side; first come, first served would let a large one hold up all others.
    "spark.scheduler.mode": "FAIR",
}
"""Settings fixed when Spark starts, that nothing but speed depends on."""

# Rows per Arrow batch between JVM and Python: the cost per batch vanishes, and it still fits the cache.
_ARROW_BATCH_ROWS = 65_536
# Partitions of a shuffle, before adaptive execution merges the small ones. Spark's 200 are 200 files for a batch of ten
# rows; twice the cores leave room for uneven keys.
_PARTITIONS_PER_CORE = 2
_MIN_PARTITIONS = 4
_CLUSTER_PARTITIONS = 64

# What Spark remembers of finished work for its UI, on the heap whether or not the UI runs. Small batches reach Spark's
# own limits (1,000 of each, with a tree of the plan per query) after hours only, and until then the heap grows.
_HISTORY = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.retainedDeadExecutors": "10",
    "spark.sql.ui.retainedExecutions": "20",
}

_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")
_LOG4J = Path(__file__).with_name("log4j2.properties")


def is_local(master: str) -> bool:
    """Whether all processes run on this machine, so that loopback serves them."""
    return master.startswith("local")


def spark_master(config: SparkConfig) -> str:
    """The master in Spark's words; a local one learns how often tasks may fail, which it takes from nowhere else."""
    found = _LOCAL.fullmatch(config.master)
    if found is None:
        return config.master
    return f"local[{found.group(1) or 1},{config.task_max_failures}]"


def spark_settings(config: SparkConfig, warehouse: str) -> dict[str, str]:
    """All settings of a session; `warehouse` is where Spark puts tables that are given no place."""
    settings = {
        "spark.master": spark_master(config),
        "spark.app.name": config.app_name,
        "spark.task.maxFailures": str(config.task_max_failures),
        "spark.driver.memory": config.driver_memory,
        # Workers start the python3 on PATH unless told.
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
        "spark.sql.shuffle.partitions": str(_shuffle_partitions(config.master)),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ARROW_BATCH_ROWS),
        # Otherwise Spark makes spark-warehouse and metastore_db where it was started.
        "spark.sql.warehouse.dir": warehouse,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **({} if config.conf.get("spark.ui.enabled", "false").lower() == "true" else _HISTORY),
        **FASTER,
    }
    if config.packages:
        settings["spark.jars.packages"] = ",".join(config.packages)
    if is_local(config.master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= config.conf
    settings["spark.driver.extraJavaOptions"] = _java_options(config)
    return settings


def _java_options(config: SparkConfig) -> str:
    # What the user gives comes last: of two equal options the JVM takes the last.
    options = [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}", "-Duser.timezone=UTC"]
    if config.short_lived:
        options.append("-XX:TieredStopAtLevel=1")
    options.append(config.conf.get("spark.driver.extraJavaOptions", ""))
    return " ".join(options).strip()


def _shuffle_partitions(master: str) -> int:
    found = _LOCAL.fullmatch(master)
    if found is None:
        return _CLUSTER_PARTITIONS
    cores = (os.cpu_count() or 1) if found.group(1) == "*" else int(found.group(1) or 1)
    return max(_MIN_PARTITIONS, cores * _PARTITIONS_PER_CORE)
