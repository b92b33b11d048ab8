"""The composition root: from settings to objects. The only place that knows which parts a pipeline is made of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..config.pipeline import PipelineConfig, StoreKind
from ..destinations.around import Around
from ..destinations.contract import Destination
from ..destinations.instrumented import DestinationCall, Instrumented
from ..destinations.retrying import Retrying
from ..destinations.translated import Translated
from ..postgres.connection import connect
from ..schema import TableName
from ..spark.labels import job
from ..stores import MemoryStore, PostgresStore, SqliteStore
from ..stores.contract import PipelineStore
from ..telemetry.metrics import Metrics
from .batches import BatchReader
from .engine import Engine
from .memory import MemoryMonitor
from .reception import Reception
from .retries import Retries
from .tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["build_engine", "build_store"]

_Result = TypeVar("_Result")


def build_store(config: PipelineConfig) -> PipelineStore:
    """The store that the settings name."""
    if config.store.kind is StoreKind.MEMORY:
        return MemoryStore()
    if config.store.kind is StoreKind.POSTGRES:
        database = config.store_pg_connection or config.pg_connection
        return PostgresStore(lambda: connect(database, "store", pipeline=config.id), config.id)
    config.store_path.parent.mkdir(parents=True, exist_ok=True)
    return SqliteStore(config.store_path, config.id)


def build_engine(
    config: PipelineConfig,
    store: PipelineStore,
    destination: Destination,
    spark: SparkSession | Any,
    stopping: threading.Event,
) -> Engine:
    metrics = Metrics(config.id, destination.name)
    reception = Reception(config.receiver_config(), stopping)

    def memory_changed(active: bool) -> None:
        metrics.backpressure_changed(active)
        reception.pause(active)

    delay_s, attempts = config.table_error_retry_delay_ms / 1000, config.table_error_retry_max_attempts
    return Engine(
        config=config,
        store=store,
        destination=wrapped(destination, spark, metrics, stopping),
        spark=spark,
        tables=Tables(store, lambda: Retries(delay_s, attempts)),
        batches=BatchReader(spark, config.spool_config(), quarantine=config.on_unrepresentable.value == "quarantine"),
        reception=reception,
        memory=MemoryMonitor(config.memory_backpressure, config.memory_refresh_interval_ms, memory_changed),
        metrics=metrics,
        stopping=stopping,
    )


def wrapped(
    destination: Destination, spark: SparkSession | Any, metrics: Metrics, stopping: threading.Event
) -> Destination:
    """From the inside out: Spark's errors become ours, then all others; what passes is retried; all is timed."""

    def in_job(method: str, table: TableName | None, call: Callable[[], _Result]) -> _Result:
        what = f"{destination.name}: {method}" + (f" of {table}" if table else "")
        with job(spark, what):
            return call()

    def observe(call: DestinationCall) -> None:
        if call.table is not None and call.method == "write_events" and call.error is None:
            metrics.written(call.table, call.seconds)

    return Instrumented(Retrying(Translated(Around(destination, in_job)), stopping=stopping), observe)
