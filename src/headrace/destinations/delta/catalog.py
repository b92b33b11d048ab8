"""From a name to a Delta table: a directory of the warehouse, and if asked for an entry in a catalog of Spark's."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError

from ...config.delta import DeltaConfig
from ...errors import ConfigError, DestinationError, DestinationRejected
from ..lake.contract import NewTable, Wrapping
from ..lake.files import TableLayout, VectorForm
from .java import Commit, DeltaJava, delta_errors
from .log_state import LogState
from .paths import is_local, table_location, table_name, warehouse_location
from .registration import Registration
from .schema import delta_schema, largest_id
from .storage import storage_properties
from .table import MAX_COLUMN_ID, DeltaTable, lake_schema_json, read_state

__all__ = ["DeltaCatalog"]

_LOG = "_delta_log"
_NO_CONNECTOR = ("ClassNotFoundException", "UnsupportedFileSystemException")
_UNPARTITIONED = json.dumps({"spec-id": 0, "fields": []})


@dataclass(frozen=True, slots=True)
class _Found:
    log: Any
    location: str
    metadata: Mapping[str, Any]
    is_new: bool = False


@contextmanager
def _connector_needed(warehouse: str) -> Iterator[None]:
    """Hadoop's clients of object stores are jars that the user names."""
    try:
        yield
    except Py4JJavaError as error:
        said = str(error.java_exception.toString())
        if not any(word in said for word in _NO_CONNECTOR):
            raise
        msg = f"Spark knows no file system for the warehouse {warehouse}"
        if warehouse.startswith("s3:"):
            hint = "write s3a://, which is Hadoop's name for S3; and name its connector, see docs/destinations/delta.md"
        else:
            hint = "name its connector under spark.packages, for S3 as in docs/destinations/delta.md"
        raise ConfigError(msg, detail=said.partition("\n")[0], hint=hint) from None


class DeltaCatalog:
    """Implements `LakeCatalog`."""

    def __init__(self, java: DeltaJava, settings: DeltaConfig, pipeline_id: int) -> None:
        self.java, self._settings, self._pipeline_id = java, settings, pipeline_id
        self._warehouse = warehouse_location(settings.warehouse)
        with delta_errors(f"open the warehouse {self._warehouse}"):
            with _connector_needed(self._warehouse):
                self._files = java.file_system(self._warehouse)
            made = self._files.mkdirs(java.path(self._warehouse))
            self._io = {} if is_local(settings.warehouse) else storage_properties(java, self._warehouse)
        if not made:
            msg = f"the warehouse {self._warehouse} is not there and cannot be made"
            raise DestinationError(msg, hint="check destination.warehouse, and what this user may write")
        self._registration = None if settings.catalog is None else Registration(java.spark, settings.catalog)
        # What is known of a table outlives a new look at it: reading all of its log is dear.
        self._seen: dict[str, DeltaTable] = {}
        self._lock = threading.Lock()

    def load(self, name: tuple[str, ...]) -> _Found | None:
        location = table_location(self._warehouse, name)
        with delta_errors(f"load table {'.'.join(name)}"):
            if not self._files.exists(self.java.path(f"{location}/{_LOG}")):
                return None
            log = self.java.log(location)
            snapshot = self.java.updated(log)
            if int(snapshot.version()) < 0:
                return None
            return _Found(log, location, json.loads(snapshot.metadata().json())["metaData"])

    def properties(self, found: _Found, name: tuple[str, ...]) -> dict[str, str]:
        del name
        return dict(found.metadata.get("configuration") or {})

    def wrapped(self, found: _Found, wrapping: Wrapping) -> DeltaTable:
        name = ".".join(wrapping.plan.name)
        application = f"headrace-{self._pipeline_id}-{wrapping.source_id}"
        layout = TableLayout(
            name=name,
            data_location=found.location,
            file_prefix=wrapping.fence.file_prefix,
            schema_json=lake_schema_json(found.metadata, name),
            spec_json=_UNPARTITIONED,
            io_properties=self._io,
            target_file_bytes=wrapping.plan.settings.maintenance.target_file_bytes,
            vectors=VectorForm.DELTA,
        )
        state = self._state(found, layout, application)
        table = DeltaTable(self.java, found.log, state, layout, wrapping, application)
        table.refresh()
        if self._registration is not None:
            self._registration.ensure(wrapping.plan.name, found.location)
        with self._lock:
            self._seen[f"{found.location} {application}"] = table
        return table

    def _state(self, found: _Found, layout: TableLayout, application: str) -> LogState:
        if found.is_new:
            return LogState(found.location, 0, found.metadata)
        with self._lock:
            seen = self._seen.get(f"{found.location} {application}")
        if seen is not None and seen.table_id == found.metadata["id"]:
            return seen.state
        with delta_errors(f"read table {layout.name}"):
            return read_state(self.java, found.log, layout, application)

    def create(self, table: NewTable) -> _Found:
        location, name = table_location(self._warehouse, table.name), ".".join(table.name)
        properties = dict(table.properties)
        comment = properties.pop("comment", None)
        metadata: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "name": table.name[-1],
            "format": {"provider": "parquet", "options": {}},
            "schemaString": delta_schema(table.schema),
            "partitionColumns": [],
            "configuration": {**properties, MAX_COLUMN_ID: str(largest_id(table.schema))},
            "createdTime": int(time.time() * 1000),
        }
        if comment:
            metadata["description"] = comment
        with delta_errors(f"create table {name}"):
            self.java.forget(location)
            log = self.java.log(location)
            self.java.commit(log, self.java.updated(log), [], Commit(uuid.uuid4().hex, metadata=metadata, is_new=True))
        found = self.load(table.name)
        assert found is not None, "it was created just now"
        return replace(found, is_new=True)

    def rename(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        before, after = table_location(self._warehouse, old), table_location(self._warehouse, new)
        if self._registration is not None:
            # First: whatever goes wrong, no entry is left of a table that is gone.
            self._registration.remove(old)
        with delta_errors(f"rename table {'.'.join(old)} to {'.'.join(new)}"):
            self._files.mkdirs(self.java.path(after.rpartition("/")[0]))
            # Into a directory that is there it would be moved, not called so.
            free = not self._files.exists(self.java.path(after))
            done = free and self._files.rename(self.java.path(before), self.java.path(after))
            self._forget(before, after)
        if self._registration is not None:
            self._registration.try_to_add(*((new, after) if done else (old, before)))
        if not done:
            msg = f"table {'.'.join(old)} cannot be renamed to {'.'.join(new)}"
            hint = f"remove or rename what is there at {after}"
            raise DestinationRejected(msg, detail=f"the directory is {'not writable' if free else 'taken'}", hint=hint)

    def names(self) -> list[tuple[str, ...]]:
        """Of all tables there are."""
        with delta_errors("list the tables of the warehouse"):
            return [
                table_name(namespace, table)
                for namespace in self._below(self._warehouse)
                for table in self._below(f"{self._warehouse}/{namespace}")
                if self._files.exists(self.java.path(f"{self._warehouse}/{namespace}/{table}/{_LOG}"))
            ]

    def _below(self, location: str) -> list[str]:
        found = self._files.listStatus(self.java.path(location))
        return [str(status.getPath().getName()) for status in found if status.isDirectory()]

    def drop(self, name: tuple[str, ...]) -> None:
        """Remove the table and its files."""
        location = table_location(self._warehouse, name)
        if self._registration is not None:
            self._registration.remove(name)
        with delta_errors(f"drop table {'.'.join(name)}"):
            # The log first: without it no reader takes what is left for a table.
            self._files.delete(self.java.path(f"{location}/{_LOG}"), True)
            self._files.delete(self.java.path(location), True)
            self._forget(location)

    def _forget(self, *locations: str) -> None:
        for location in locations:
            self.java.forget(location)
        with self._lock:
            for key in [key for key in self._seen if key.rpartition(" ")[0] in locations]:
                del self._seen[key]

    def close(self) -> None:
        with self._lock:
            self._seen.clear()
