"""The composition root: from settings to objects. The only place that knows which parts a pipeline is made of."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from ..config.destination import DESTINATION_SETTINGS, DestinationConfig, StdoutConfig
from ..config.destination_class import destination_class, settings_of
from ..config.lane import UNNAMED
from ..config.load import destination_settings
from ..config.pipeline import PipelineConfig, PipelineMode, StoreKind
from ..config.spark import SparkConfig
from ..destinations import MemoryDestination, NullDestination, StdoutDestination
from ..destinations.around import Around
from ..destinations.contract import Destination
from ..destinations.instrumented import DestinationCall, Instrumented
from ..destinations.retrying import Retrying
from ..destinations.spark_needs import NeedsSpark
from ..destinations.transforms import transformed
from ..destinations.translated import Translated
from ..errors import ConfigError
from ..postgres.catalog import table_schemas
from ..postgres.connection import connect
from ..postgres.source.message_key import MessageKey, MessageVerifier, read_message_key
from ..private_files import grant, group_access, make_directory, secure_directory
from ..schema import TableName, TableSchema
from ..spark.labels import job
from ..stores import MemoryStore, PostgresStore, SqliteStore
from ..stores.contract import PipelineStore
from ..stores.lane_id import lane_id
from ..telemetry.metrics import Metrics
from .batches import BatchReader
from .engine import Engine, Fence
from .memory import MemoryMonitor
from .outlets import Outlet
from .reception import Reception
from .retries import table_retries
from .schema_following import SchemaFollower
from .shared import Shared
from .shared_reception import SharedReception
from .table_policies import TablePolicies
from .tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "build_destination",
    "build_destinations",
    "build_engine",
    "build_shared",
    "build_store",
    "build_stores",
    "name_run",
    "prepare_directory",
    "spark_config",
]

_Result = TypeVar("_Result")
_EXTENSIONS = "spark.sql.extensions"


def build_store(config: PipelineConfig, destination: str = UNNAMED) -> PipelineStore:
    """The store that the settings name; for one of several destinations, by its name, its part of it."""
    if config.store.kind is StoreKind.MEMORY:
        return MemoryStore()
    key = lane_id(config.id, destination)
    if config.store.kind is StoreKind.POSTGRES:
        database = config.store_pg_connection or config.pg_connection
        return PostgresStore(lambda: connect(database, "store", pipeline=config.id), key)
    prepare_directory(config)
    make_directory(config.store_path.parent)
    return SqliteStore(config.store_path, key)


def prepare_directory(config: PipelineConfig) -> None:
    """Make the pipeline's part of data_dir, or tighten its mode. Raises ConfigError where others can write to it.

    data_dir itself is tightened only if nothing but this user's pipelines lies in it: others may use it too. Raises
    OSError for what the system refuses.
    """
    access = group_access(config.spool.group if config.spool.uri is None else None)
    make_directory(config.directory, access)
    secure_directory(config.directory, access, mode=access.passage_mode)
    entries = [config.data_dir, *config.data_dir.iterdir()]
    ours = all(entry.lstat().st_uid == os.geteuid() for entry in entries)
    if ours and all(entry.name.startswith("pipeline-") for entry in entries[1:]):
        grant(config.data_dir, access.passage_mode, access)


def build_stores(config: PipelineConfig) -> dict[str, PipelineStore]:
    """A store for each destination that the settings name, by its name."""
    return {name: build_store(config, name) for name in config.lanes}


def build_destinations(config: PipelineConfig) -> dict[str, Destination]:
    """The destinations that the settings name, by name: that of `destination` has none. Raises as below."""
    if not config.lanes:
        msg = "the configuration names no destination"
        raise ConfigError(msg, hint=f"add a section destination with a kind: {', '.join(DESTINATION_SETTINGS)}")
    return {name: _destination(section) for name, section in config.lanes.items()}


def build_destination(config: PipelineConfig) -> Destination:
    """The one destination that the settings name. Raises ConfigError for none, or for one that is not installed."""
    if config.destinations:
        msg = "the configuration names destinations, not destination"
        raise ConfigError(msg, hint="use build_destinations")
    return build_destinations(config)[UNNAMED]


def _destination(section: DestinationConfig) -> Destination:
    settings, kind = destination_settings(section), section.kind
    if isinstance(settings, StdoutConfig):
        return StdoutDestination(format=settings.format.value)
    if kind in _PLAIN:
        return _PLAIN[kind]()
    cls = _class(kind, *_WITH_SETTINGS[kind]) if kind in _WITH_SETTINGS else destination_class(kind)
    assert cls is not None, "its settings were found by it"
    built: Destination = cls(settings) if kind in _WITH_SETTINGS or settings_of(cls) else cls()
    return built


_PLAIN: dict[str, Callable[[], Destination]] = {
    "memory": MemoryDestination,
    "null": NullDestination,
}
_WITH_SETTINGS = {
    "iceberg": ("iceberg", "IcebergDestination"),
    "delta": ("delta", "DeltaDestination"),
    "duckdb": ("duckdb", "DuckDBDestination"),
    "ducklake": ("duckdb", "DuckDBDestination"),
    "parquet": ("parquet", "ParquetDestination"),
}
"""Modules of `destinations` and their classes: only who uses one needs its extra, which has the name of the kind."""


def _class(kind: str, module: str, name: str) -> type[Any]:
    try:
        found: type[Any] = getattr(import_module(f"headrace.destinations.{module}"), name)
    except ModuleNotFoundError as error:
        msg = f"the destination {kind} needs the Python package {error.name}, which is not installed"
        raise ConfigError(msg, hint=f"install it: pip install 'headrace[{kind}]'") from None
    return found


def spark_config(config: PipelineConfig, *destinations: Destination) -> SparkConfig:
    """The settings of Spark, with the jars and settings that the destinations need; the user's own win."""
    needy = [destination for destination in destinations if isinstance(destination, NeedsSpark)]
    if not needy:
        return config.spark
    packages = dict.fromkeys((*config.spark.packages, *(jar for destination in needy for jar in destination.packages)))
    given = [*(destination.spark_conf for destination in needy), config.spark.conf]
    conf = {name: value for some in given for name, value in some.items()}
    extensions = [some[_EXTENSIONS] for some in given if _EXTENSIONS in some]
    if extensions:
        conf[_EXTENSIONS] = ",".join(dict.fromkeys(",".join(extensions).split(",")))
    return config.spark.model_copy(update={"packages": tuple(packages), "conf": conf})


def build_shared(
    config: PipelineConfig,
    outlets: Sequence[Outlet],
    spark: SparkSession | Any,
    stopping: threading.Event,
) -> Shared:
    """What the lanes of a life have in common. Their metrics have no destination if there are several."""
    only = outlets[0] if not outlets[0].name else None
    metrics = Metrics(config.id, "" if only is None else only.destination.name)
    reception = Reception(config.receiver_config(), stopping)

    def memory_changed(active: bool) -> None:
        metrics.backpressure_changed(active)
        reception.pause(active)

    return Shared(
        config=config,
        spark=spark,
        reception=SharedReception(reception, [outlet.name for outlet in outlets]),
        memory=MemoryMonitor(config.memory_backpressure, config.memory_refresh_interval_ms, memory_changed),
        metrics=metrics,
        lanes=len(outlets),
        run_id=name_run("copy" if config.mode is PipelineMode.COPY_ONLY else "run"),
    )


def name_run(kind: str) -> str:
    """Name a start of a driver for the records of destinations: what it is, where it runs, and a random word."""
    return f"{kind} by process {os.getpid()} on {socket.gethostname()}, {uuid4().hex[:12]}"


def build_engine(shared: Shared, outlet: Outlet, stopping: threading.Event) -> Engine:
    """The parts of one lane."""
    config, store, spark = shared.config, outlet.store, shared.spark
    metrics = Metrics(config.id, outlet.name, within=shared.metrics) if outlet.name else shared.metrics
    fence = Fence()
    inner = wrapped(transformed(outlet.destination, config.transforms), spark, metrics, stopping)
    outer = Around(inner, fence.around)
    policies = TablePolicies(config.schema_changes)
    verifier = MessageVerifier(partial(_read_key, config))
    follower = SchemaFollower(partial(_look_up, config), outer.follows, policies.of, verifier=verifier)
    return Engine(
        config=config,
        store=store,
        destination=outer,
        spark=spark,
        tables=Tables(store, partial(table_retries, config), policies, outlet.name),
        batches=BatchReader(spark, config.spool_config(), follower, quarantine=config.quarantine),
        reception=shared.reception.of(outlet.name, stopping),
        memory=shared.memory,
        metrics=metrics,
        stopping=stopping,
        lane=outlet.name,
        lanes=shared.lanes,
        run_id=shared.run_id,
        fence=fence,
    )


def _look_up(config: PipelineConfig, table_id: int) -> TableSchema | None:
    """What the catalog says of a table now."""
    with connect(config.pg_connection, "schema", pipeline=config.id) as connection:
        return table_schemas(connection, [table_id]).get(table_id)


def _read_key(config: PipelineConfig) -> MessageKey | None:
    with connect(config.pg_connection, "schema", pipeline=config.id) as connection:
        return read_message_key(connection)


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
