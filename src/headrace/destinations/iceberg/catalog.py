"""The catalog: from the settings to Iceberg's Java catalog, and from a name to a table."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import structlog

from ...config.iceberg import CatalogConfig, CatalogType, IcebergConfig
from ...errors import ConfigError
from ..lake.contract import NewTable, Wrapping
from ..lake.java_errors import java_errors
from ..lake.places import file_io_for
from .expired_files import ExpiredFiles
from .java import PACKAGES, Java
from .layout import table_layout
from .locations import own_location
from .table import IcebergTable

__all__ = ["Catalog", "catalog_packages", "catalog_properties"]

_log = structlog.get_logger("headrace.destinations.iceberg")

_IMPLEMENTATIONS = {
    CatalogType.SQLITE: "org.apache.iceberg.jdbc.JdbcCatalog",
    CatalogType.REST: "org.apache.iceberg.rest.RESTCatalog",
    CatalogType.GLUE: "org.apache.iceberg.aws.glue.GlueCatalog",
    CatalogType.HIVE: "org.apache.iceberg.hive.HiveCatalog",
}
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
# Another process, a reader's say, may hold the file for a moment.
_SQLITE_OPTIONS = "?busy_timeout=60000&journal_mode=WAL&transaction_mode=IMMEDIATE"


def catalog_packages(config: IcebergConfig) -> tuple[str, ...]:
    """The jars, by Maven coordinates, that the driver needs."""
    packages = list(PACKAGES)
    if config.catalog.type is CatalogType.SQLITE:
        packages.append(SQLITE)
    if config.catalog.type is CatalogType.GLUE or urlparse(config.warehouse).scheme in ("s3", "s3a"):
        packages.append(AWS)
    return tuple(packages)


def catalog_properties(config: IcebergConfig) -> dict[str, str]:
    """The properties of Iceberg's catalog, secrets among them."""
    catalog = config.catalog
    properties = {
        "catalog-impl": _IMPLEMENTATIONS[catalog.type],
        "warehouse": _warehouse_uri(config),
        # Tables are refreshed before each use.
        "cache-enabled": "false",
    }
    if catalog.type is CatalogType.SQLITE:
        properties |= {"uri": f"jdbc:sqlite:{_sqlite_file(config)}{_SQLITE_OPTIONS}", "jdbc.schema-version": "V1"}
    elif catalog.uri is not None:
        properties["uri"] = catalog.uri
    if urlparse(config.warehouse).scheme in ("s3", "s3a"):
        properties["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    return properties | catalog.properties | _secrets(catalog)


def _secrets(catalog: CatalogConfig) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in catalog.secrets.items()}


def _warehouse_uri(config: IcebergConfig) -> str:
    """Not by percent signs: neither Java nor pyiceberg decodes them, and both would make directories called so."""
    return config.warehouse if config.local_warehouse is None else f"file://{config.local_warehouse}"


def _sqlite_file(config: IcebergConfig) -> Path:
    if config.catalog_file is None:
        msg = "the catalog has no place: its default, a SQLite file in the warehouse, needs a warehouse on local disk"
        raise ConfigError(msg, hint="set destination.catalog.uri to a local file, or destination.catalog.type to rest")
    return config.catalog_file


class Catalog:
    """Iceberg's Java catalog. Thread-safe, as that is."""

    def __init__(self, java: Java, config: IcebergConfig) -> None:
        self.java = java
        self._properties = catalog_properties(config)
        self._making_namespace = threading.Lock()
        # Made once: each takes a dozen calls.
        self._identifiers: dict[tuple[str, ...], Any] = {}
        if config.catalog.type is CatalogType.SQLITE:
            _prepare(config)
        with java_errors(f"open the {config.catalog.type.value} catalog"):
            self._catalog = java.iceberg.CatalogUtil.buildIcebergCatalog(
                config.catalog.name, java.map(self._properties), java.hadoop
            )

    @property
    def io_properties(self) -> dict[str, str]:
        """What a reader or writer of files needs of the properties."""
        return {name: value for name, value in self._properties.items() if name.split(".")[0] not in ("jdbc", "uri")}

    def load(self, name: tuple[str, ...]) -> Any | None:
        """The Java table; None if there is none of this name."""
        identifier = self._identifier(name)
        with java_errors(f"load table {'.'.join(name)}"):
            return self._catalog.loadTable(identifier) if self._catalog.tableExists(identifier) else None

    def properties(self, found: Any, name: tuple[str, ...]) -> dict[str, str]:
        with java_errors(f"read table {'.'.join(name)}"):
            return self.java.mapping(found.properties())

    def wrapped(self, found: Any, wrapping: Wrapping) -> IcebergTable:
        with java_errors(f"read table {'.'.join(wrapping.plan.name)}"):
            layout = table_layout(self.java, found, wrapping, self.io_properties)
        return IcebergTable(self.java, found, layout, wrapping.key, wrapping.fence)

    def create(self, table: NewTable) -> Any:
        iceberg = self.java.iceberg
        with java_errors(f"create table {'.'.join(table.name)}"):
            self._make_namespace(table.name[:-1])
            schema = iceberg.SchemaParser.fromJson(json.dumps(table.schema))
            spec = iceberg.PartitionSpecParser.fromJson(schema, json.dumps(table.spec))
            order = iceberg.SortOrderParser.fromJson(schema, json.dumps(table.sort_order))
            builder = self._catalog.buildTable(self._identifier(table.name), schema)
            builder.withPartitionSpec(spec).withSortOrder(order).withProperties(self.java.map(table.properties))
            # Not committed: it tells where the catalog would put the table.
            planned = builder.createTransaction().table()
            location = own_location(planned, table.name)
            return (builder if location == planned.location() else builder.withLocation(location)).create()

    def rename(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        with java_errors(f"rename table {'.'.join(old)} to {'.'.join(new)}"):
            self._make_namespace(new[:-1])
            self._catalog.renameTable(self._identifier(old), self._identifier(new))

    def names(self) -> list[tuple[str, ...]]:
        """Of all tables there are."""
        with java_errors("list the tables of the catalog"):
            empty = self.java.iceberg.catalog.Namespace.empty()
            return [name for space in self._namespaces(empty) for name in self._tables_in(space)]

    def _namespaces(self, above: Any) -> Iterator[Any]:
        for space in self._catalog.listNamespaces(above):
            yield space
            yield from self._namespaces(space)

    def _tables_in(self, space: Any) -> Iterator[tuple[str, ...]]:
        for identifier in self._catalog.listTables(space):
            yield (*identifier.namespace().levels(), identifier.name())

    def _make_namespace(self, parts: tuple[str, ...]) -> None:
        namespace = self.java.iceberg.catalog.Namespace.of(self.java.strings(parts))
        # Tables are created side by side, and a namespace that two find missing only one can make.
        with self._making_namespace:
            if not self._catalog.namespaceExists(namespace):
                self._catalog.createNamespace(namespace)

    def drop(self, name: tuple[str, ...]) -> None:
        """Remove the table and its files, those of expired snapshots too."""
        try:
            self._remove_expired_files(name)
        except Exception as error:  # noqa: BLE001 - whatever it is, a table that cannot be read must go too
            _log.warning("files of expired snapshots are left", table=".".join(name), error=type(error).__name__)
        with java_errors(f"drop table {'.'.join(name)}"):
            self._catalog.dropTable(self._identifier(name), True)

    def _remove_expired_files(self, name: tuple[str, ...]) -> None:
        """Delete what no snapshot refers to any more: after the table nobody would look for it."""
        table = self.load(name)
        if table is None:
            return
        properties = {**self.io_properties, **self.java.mapping(table.io().properties())}
        files = ExpiredFiles(self.java, table, file_io_for(properties, str(table.location())), ".".join(name))
        if files.has_listing:
            files.remove_all()

    def close(self) -> None:
        with java_errors("close the catalog"):
            self.java.close(self._catalog)

    def _identifier(self, name: tuple[str, ...]) -> Any:
        known = self._identifiers.get(name)
        if known is None:
            known = self._identifiers[name] = self.java.iceberg.catalog.TableIdentifier.of(self.java.strings(name))
        return known


def _prepare(config: IcebergConfig) -> None:
    """Make the directories. What may not be written is told before SQLite finds it, and cannot say which setting."""
    file = _sqlite_file(config)
    if config.local_warehouse is not None:
        _make_directory("destination.warehouse", config.local_warehouse)
    if config.catalog.uri is not None:
        _make_directory("destination.catalog.uri", file.parent)
    if file.exists() and not os.access(file, os.W_OK):
        msg = f"the catalog is {file}, and this user may not write to it"
        raise ConfigError(msg, hint=f"chown or chmod {file}, or set destination.catalog.uri to another file")


def _make_directory(setting: str, path: Path) -> None:
    remedy = f"or set {setting} to another place"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{setting} needs the directory {path}, which cannot be made"
        hint = f"make it, with the rights to write to it, {remedy}"
        raise ConfigError(msg, detail=error.strerror, hint=hint) from None
    if not os.access(path, os.W_OK | os.X_OK):
        msg = f"{setting} needs the directory {path}, and this user may not write to it"
        raise ConfigError(msg, hint=f"chown or chmod it, {remedy}")
