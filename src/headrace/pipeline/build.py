"""The composition root: from settings to objects. The only place that knows which parts a pipeline is made of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..config.iceberg import IcebergConfig
from ..config.load import destination_settings
from ..config.pipeline import PipelineConfig, StoreKind
from ..config.spark import SparkConfig
from ..destinations import MemoryDestination, NullDestination, StdoutDestination
from ..destinations.around import Around
from ..destinations.contract import Destination
from ..destinations.instrumented import DestinationCall, Instrumented
from ..destinations.jars import NeedsJars
from ..destinations.retrying import Retrying
from ..destinations.translated import Translated
from ..errors import ConfigError
from ..postgres.catalog import table_schemas
from ..postgres.connection import connect
from ..schema import TableName, TableSchema
from ..spark.labels import job
from ..stores import MemoryStore, PostgresStore, SqliteStore
from ..stores.contract import PipelineStore
from ..telemetry.metrics import Metrics
from .batches import BatchReader
from .engine import Engine
from .memory import MemoryMonitor
from .reception import Reception
from .retries import Retries
from .schema_following import SchemaFollower
from .tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["build_destination", "build_engine", "build_store", "spark_config"]

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


def build_destination(config: PipelineConfig) -> Destination:
    """The destination that the settings name. Raises ConfigError for none, or for one that is not installed."""
    if config.destination is None:
        msg = "the configuration names no destination"
        raise ConfigError(msg, hint="add a section destination with a kind: iceberg, stdout, memory or null")
    settings = destination_settings(config.destination)
    if isinstance(settings, IcebergConfig):
        return _iceberg(settings, config.quarantine)
    kinds: dict[str, Callable[[], Destination]] = {
        "stdout": StdoutDestination,
        "memory": MemoryDestination,
        "null": NullDestination,
    }
    return kinds[config.destination.kind]()


def _iceberg(settings: IcebergConfig, quarantine: bool) -> Destination:
    try:
        from ..destinations.iceberg import IcebergDestination  # noqa: PLC0415 - only who uses it needs the extra
    except ModuleNotFoundError as error:
        msg = f"the destination iceberg needs the Python package {error.name}, which is not installed"
        raise ConfigError(msg, hint="install it: pip install 'headrace[iceberg]'") from None
    return IcebergDestination(settings, quarantine=quarantine)


def spark_config(config: PipelineConfig, destination: Destination) -> SparkConfig:
    """The settings of Spark, with the jars that the destination needs."""
    needed = destination.packages if isinstance(destination, NeedsJars) else ()
    return config.spark.model_copy(update={"packages": tuple(dict.fromkeys((*config.spark.packages, *needed)))})


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

    outer = wrapped(destination, spark, metrics, stopping)
    follower = SchemaFollower(partial(_look_up, config), outer.follows, config.schema_changes.of)
    delay_s, attempts = config.table_error_retry_delay_ms / 1000, config.table_error_retry_max_attempts
    return Engine(
        config=config,
        store=store,
        destination=outer,
        spark=spark,
        tables=Tables(store, lambda: Retries(delay_s, attempts), config.schema_changes.of),
        batches=BatchReader(spark, config.spool_config(), follower, quarantine=config.quarantine),
        reception=reception,
        memory=MemoryMonitor(config.memory_backpressure, config.memory_refresh_interval_ms, memory_changed),
        metrics=metrics,
        stopping=stopping,
    )


def _look_up(config: PipelineConfig, table_id: int) -> TableSchema | None:
    """What the catalog says of a table now."""
    with connect(config.pg_connection, "schema", pipeline=config.id) as connection:
        return table_schemas(connection, [table_id]).get(table_id)


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
