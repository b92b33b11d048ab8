"""Checks of what a pipeline needs on this machine, and of its settings against the source: as findings with a remedy.

They make no directory and no file; what a start would make is looked at where it would be made.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import structlog

from ..config.load import destination_settings
from ..config.parquet import ParquetConfig
from ..config.pipeline import InvalidatedSlotBehavior, PipelineConfig, PipelineMode, StoreKind
from ..config.table_destination import TableDestinationConfig
from ..errors import ConfigError, HeadraceError, SparkUnavailable, StoreError
from ..postgres.connection import connect
from ..postgres.preflight import Finding, Severity
from ..postgres.publications import published_tables
from ..postgres.slots import require_own, slot_state
from ..private_files import require_private
from ..schema import ReplicatedTableSchema, TableName
from ..spark.java import find_java
from .known_store import known_stores

__all__ = ["LOCAL_CHECKS", "PIPELINE_CHECKS", "check_here", "check_there", "require_startable", "with_source"]

_log = structlog.get_logger("headrace.run")

_PACKAGES = {
    "iceberg": ("pyiceberg", "pyiceberg_core", "pyroaring"),
    "delta": ("pyiceberg", "pyroaring"),
    "duckdb": ("duckdb",),
    "ducklake": ("duckdb", "duckdb_extension_ducklake", "duckdb_extension_sqlite_scanner"),
}
"""What the built-in destinations import, each from the extra of its name."""
_KNOWN_BY_ARROW = ("s3", "s3a", "s3n", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
"""Schemes that pyarrow and Spark open themselves."""
_CLUSTER_SECURITY = ("spark.authenticate", "spark.network.crypto.enabled")
_METRICS_PORT = "metrics port"


def _destination(config: PipelineConfig) -> Iterator[Finding]:
    if not config.lanes:
        message = "the configuration names no destination: it cannot be run"
        yield Finding("destination", Severity.ERROR, message, "add a section destination with a kind, such as iceberg")
    for kind in dict.fromkeys(destination.kind for destination in config.lanes.values()):
        missing = [package for package in _PACKAGES.get(kind, ()) if find_spec(package) is None]
        if missing:
            message = f"the destination {kind} needs Python packages: {', '.join(missing)}"
            yield Finding("destination", Severity.ERROR, message, f"pip install 'headrace[{kind}]'")


def _transforms(config: PipelineConfig) -> Iterator[Finding]:
    if any(table.needs_sql for table in config.transforms.tables.values()) and find_spec("duckdb") is None:
        message = "filters and hashes of transforms need the Python package duckdb"
        yield Finding("transforms", Severity.ERROR, message, "pip install 'headrace[duckdb]'")
    for table in config.transforms.tables.values():
        try:
            if table.transform is not None:
                table.function()
        except ConfigError as error:
            yield Finding("transforms", Severity.ERROR, str(error), error.hint)


def _java(config: PipelineConfig) -> Iterator[Finding]:
    if not config.spark.master.startswith("local"):
        # The driver runs here all the same, and so does its Java.
        yield Finding("spark", Severity.INFO, f"Spark runs on {config.spark.master}: its executors are not looked at")
    try:
        find_java()
    except SparkUnavailable as error:
        yield Finding("java", Severity.ERROR, str(error), error.hint)


def _cluster(config: PipelineConfig) -> Iterator[Finding]:
    """Find a cluster on which tasks, which carry the source's password, travel unprotected as far as settings show."""
    if config.spark.master.startswith("local"):
        return
    off = [name for name in _CLUSTER_SECURITY if config.spark.conf.get(name, "").lower() != "true"]
    if off:
        message = (
            f"tasks carry the source's password to {config.spark.master}, and the configuration does not set "
            f"{' and '.join(off)}: other users of the network may read it"
        )
        remedy = f"set {' and '.join(off)} to true under spark.conf, or in the cluster's own defaults"
        yield Finding("spark", Severity.WARNING, message, remedy)


def _directories(config: PipelineConfig) -> Iterator[Finding]:
    for setting, path in _places(config).items():
        above = path
        while not above.exists() and above != above.parent:
            above = above.parent
        if not above.is_dir():
            message = f"{setting} is {path}, but {above} is a file"
            yield Finding("directories", Severity.ERROR, message, f"move it away, or set {setting} to another place")
        elif not os.access(above, os.W_OK | os.X_OK):
            where = "it" if above == path else above
            message = f"{setting} is {path}, and this user may not write to {where}"
            yield Finding("directories", Severity.ERROR, message, f"chown or chmod {above}, or set {setting}")
    yield from _private(config)


def _private(config: PipelineConfig) -> Iterator[Finding]:
    """Look whether others can write where only the pipeline may."""
    spool = config.spool_config().uri
    for path in [config.directory, *([Path(spool.removeprefix("file://"))] if _is_local(spool) else [])]:
        try:
            if path.is_dir():
                require_private(path)
        except ConfigError as error:
            yield Finding("directories", Severity.ERROR, str(error), error.hint)
        except OSError:
            continue  # told by the look at the directories


def _remote_places(config: PipelineConfig) -> Iterator[Finding]:
    """Find places whose URI no installed package can open; nothing is connected to."""
    places = {} if config.spool.uri is None else {"spool.uri": config.spool.uri}
    for name, settings in _table_destinations(config):
        places |= {f"{_section(name)}.{setting}": place for setting, place in settings.directories().items()}
    for setting, uri in places.items():
        scheme = uri.partition("://")[0]
        if _is_local(uri) or scheme in _KNOWN_BY_ARROW:
            continue
        from fsspec.registry import get_filesystem_class  # noqa: PLC0415 - only remote places need it

        try:
            get_filesystem_class(scheme)
        except (ImportError, ValueError) as error:
            message = f"{setting} is at {scheme}://, which cannot be opened here: {error}"
            remedy = f"install the package that it needs, or correct {setting}"
            yield Finding("directories", Severity.ERROR, message, remedy)


def _metrics_port(config: PipelineConfig) -> Iterator[Finding]:
    """Find a metrics port that cannot be opened, by opening it for a moment."""
    host, port = config.metrics.host, config.metrics.port
    if not config.metrics.enabled or not port:
        return
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except OSError as error:
        message = f"metrics cannot be served on port {port} of {host}: {error.strerror}"
        yield Finding(_METRICS_PORT, Severity.ERROR, message, "set metrics.port to a free port, or to 0")


def _places(config: PipelineConfig) -> dict[str, Path]:
    """The directories a pipeline writes to, by the setting that names each."""
    places = {"data_dir": config.data_dir}
    if config.store.kind is StoreKind.SQLITE and config.store.path is not None:
        places["store.path"] = config.store.path.parent
    if config.spool.uri is not None and _is_local(config.spool.uri):
        places["spool.uri"] = Path(config.spool.uri.removeprefix("file://"))
    for name, settings in _table_destinations(config):
        for setting, place in settings.directories().items():
            if _is_local(place):
                places[f"{_section(name)}.{setting}"] = Path(place.removeprefix("file://"))
    return {setting: path.absolute() for setting, path in places.items()}


def _table_destinations(config: PipelineConfig) -> Iterator[tuple[str, TableDestinationConfig | ParquetConfig]]:
    """The settings of destinations with places, and the name of each."""
    for name, section in config.lanes.items():
        settings = destination_settings(section)
        if isinstance(settings, TableDestinationConfig | ParquetConfig):
            yield name, settings


def _section(destination: str) -> str:
    """Where a destination's settings stand in the configuration."""
    return f"destinations.{destination}" if destination else "destination"


def _is_local(uri: str) -> bool:
    return "://" not in uri or uri.startswith("file://")


def _slot(connection: psycopg.Connection[Any], config: PipelineConfig) -> Iterator[Finding]:
    if config.mode is PipelineMode.COPY_ONLY:
        return
    state = slot_state(connection, config.slot_name)
    if state is None:
        return
    try:
        require_own(state, connection.info.dbname)
    except ConfigError as error:
        yield Finding("slot", Severity.ERROR, error.message, error.hint)
        return
    if state.lost:
        message = f"replication slot {state.name} is lost: {state.invalidation_reason or state.wal_status}"
        recreated = config.invalidated_slot_behavior is InvalidatedSlotBehavior.RECREATE
        remedy = "set invalidated_slot_behavior to recreate: a new slot is made and all tables are copied again"
        if recreated:
            message, remedy = f"{message}; the next start makes a new one and copies all tables again", ""
        yield Finding("slot", Severity.WARNING if recreated else Severity.ERROR, message, remedy)
    elif state.active:
        message = f"replication slot {state.name} is being read by server process {state.active_pid}: the pipeline runs"
        yield Finding("slot", Severity.INFO, message)


def _named_tables(connection: psycopg.Connection[Any], config: PipelineConfig) -> Iterator[Finding]:
    """Tables that settings name and the publication does not have."""
    published = {str(schema.table.name) for schema in published_tables(connection, config.publication_name)}
    named = {"table_sync_copy.tables": config.table_sync_copy.tables, "transforms.tables": config.transforms.tables}
    for setting, tables in named.items():
        for table in tables:
            if table not in published:
                message = f"{setting} names {table}, which the publication does not have"
                remedy = "correct the name, or add it to the publication"
                yield Finding("named tables", Severity.ERROR, message, remedy)


def _transformed_columns(connection: psycopg.Connection[Any], config: PipelineConfig) -> Iterator[Finding]:
    """Find what a start would refuse of transforms: columns that do not exist, hidden keys, filters that fail."""
    tables = {name: table for name, table in config.transforms.tables.items() if table.in_words}
    if not tables or (any(table.needs_sql for table in tables.values()) and find_spec("duckdb") is None):
        return
    from ..destinations.transforms.table_transform import chosen, table_transform  # noqa: PLC0415 - it comes with Arrow

    salt = "" if config.transforms.salt is None else config.transforms.salt.get_secret_value()
    for schema in published_tables(connection, config.publication_name):
        settings = tables.get(str(schema.table.name))
        try:
            if settings is not None:
                table_transform(settings, salt, chosen(settings, schema), schema)
        except ConfigError as error:
            yield Finding("transforms", Severity.ERROR, str(error), error.hint)


def _planned_tables(connection: psycopg.Connection[Any], config: PipelineConfig) -> Iterator[Finding]:
    """What a start would refuse of the tables' names, modes and settings at destinations, by what refuses it there."""
    from ..destinations.table_plans import check_columns, check_named, plan_tables  # noqa: PLC0415 - it comes with Arrow

    published = published_tables(connection, config.publication_name)
    names = [schema.table.name for schema in published]
    formerly = _formerly(config, published)
    for name, settings in _table_destinations(config):
        if not isinstance(settings, TableDestinationConfig):
            continue
        try:
            check_named(settings, names, formerly.get(name, {}))
            plans = plan_tables(settings, names, formerly.get(name, {}))
            for schema in published:
                check_columns(schema, plans[schema.table.name].mode)
        except ConfigError as error:
            # Without a store that could be read, a name may be one that a table had before.
            severity = Severity.ERROR if name in formerly else Severity.WARNING
            message = f"{_section(name)}: {error}" if name else str(error)
            yield Finding("destination tables", severity, message, error.hint)


def _formerly(
    config: PipelineConfig, published: Sequence[ReplicatedTableSchema]
) -> dict[str, dict[TableName, list[str]]]:
    """The names that tables had before, by destination; none where the store cannot be read."""
    from ..destinations.table_plans import former_names  # noqa: PLC0415

    try:
        with known_stores(config) as stores:
            return {name: former_names(store, published) if store else {} for name, store in stores.items()}
    except StoreError:
        return {}


LOCAL_CHECKS: tuple[Callable[[PipelineConfig], Iterator[Finding]], ...] = (
    _destination,
    _transforms,
    _java,
    _cluster,
    _directories,
    _remote_places,
    _metrics_port,
)
PIPELINE_CHECKS: tuple[Callable[[psycopg.Connection[Any], PipelineConfig], Iterator[Finding]], ...] = (
    _slot,
    _named_tables,
    _transformed_columns,
    _planned_tables,
)


def check_here(config: PipelineConfig) -> list[Finding]:
    """What can be checked without the source."""
    return [finding for check in LOCAL_CHECKS for finding in check(config)]


def check_there(connection: psycopg.Connection[Any], config: PipelineConfig) -> list[Finding]:
    """What a pipeline's settings need of the source, besides the preflight checks."""
    found: list[Finding] = []
    for check in PIPELINE_CHECKS:
        try:
            found += check(connection, config)
        except HeadraceError:
            # The preflight checks meet the same, and tell it.
            continue
    return found


def with_source(here: list[Finding], there: list[Finding]) -> list[Finding]:
    """Join the findings of this machine and of the source; a metrics port is no error while the pipeline runs.

    A run that has the port, and the slot, is waited for by the next one.
    """
    running = any(found.check == "slot" and found.severity is Severity.INFO for found in there)
    return [*(found for found in here if not (running and found.check == _METRICS_PORT)), *there]


def require_startable(config: PipelineConfig) -> None:
    """Raise ConfigError for the first thing, and log all others, that `headrace check` would call an error.

    Raise SparkUnavailable where there is no Java. It takes well under a second; what is found here would otherwise be
    found after Spark has started.
    """
    with connect(config.pg_connection, "check", pipeline=config.id) as connection:
        findings = with_source(check_here(config), check_there(connection, config))
    # A slot that is lost is the pipeline's to report: its error says what was lost.
    errors = [found for found in findings if found.severity is Severity.ERROR and found.check != "slot"]
    for found in errors[1:]:
        _log.error("the pipeline cannot start", check=found.check, found=found.message, hint=found.remedy)
    if errors:
        kind = SparkUnavailable if errors[0].check == "java" else ConfigError
        raise kind(errors[0].message, hint=errors[0].remedy)
