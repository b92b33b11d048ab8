"""Reads a log back: which files count, and what they hold, table by table and commit by commit.

log = open_log("s3://lake/shop", {"key": …})
spark.read.parquet(*log.table("public.orders").files())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import ConfigError, DestinationError, RetryPolicy, TableNotFound
from ...pgoutput.changes import CHANGE_FIELDS
from ...pgtypes.registry import conversion_for
from ...schema import ReplicatedTableSchema, TableName
from .data_files import change_rows, copied_rows
from .layout import OWNER, ManifestKind, ManifestName, content_generation, missing_sequences, table_id_of
from .manifest import COPY_AGAIN, DataFile, Manifest, StoredRows, from_json, missing_manifests
from .storage import Storage
from .table_log import manifest_names

__all__ = [
    "LoggedTable",
    "ParquetLog",
    "changes_schema",
    "open_log",
    "read_changes",
    "read_copied",
    "read_rejected",
    "row_schema",
]


def open_log(location: str, storage_options: Mapping[str, Any] | None = None) -> ParquetLog:
    """The log at a directory or URI. Raises ConfigError if there is none."""
    storage = Storage(location, dict(storage_options or {}))
    if storage.read(OWNER) is None:
        msg = f"there is no change log at {location.partition('?')[0]}"
        raise ConfigError(msg, hint="name the location of a destination of kind parquet, as its settings do")
    return ParquetLog(storage)


@dataclass(frozen=True, slots=True)
class ParquetLog:
    """What a pipeline with a destination of kind `parquet` has written."""

    storage: Storage

    def tables(self) -> list[LoggedTable]:
        """The tables that are there, by name. Raises DestinationError for one whose log lacks a manifest."""
        tables = self._tables()
        for table in tables:
            table.require_complete()
        return tables

    def table(self, name: str | TableName) -> LoggedTable:
        """Raises TableNotFound, and DestinationError if the table's log lacks a manifest."""
        # The newest first: a table that was dropped and created again has another OID.
        for table in sorted(self._tables(), key=lambda table: -table.schema.table.id):
            if str(table.name) == str(name):
                table.require_complete()
                return table
        msg = f"the log has no table {name}"
        raise TableNotFound(msg, hint="give the name as schema.table, as it is now at the source")

    def _tables(self) -> list[LoggedTable]:
        found = [self._table(name) for name in self.storage.directories() if table_id_of(name) is not None]
        return sorted((table for table in found if table is not None), key=lambda table: table.name)

    def _table(self, directory: str) -> LoggedTable | None:
        names, gaps = _complete_names(self.storage, directory)
        generation = content_generation(names)
        if generation is None:
            return None
        marks = (ManifestKind.BEGIN, ManifestKind.CLAIM)
        own = [name for name in names if name.generation == generation and name.kind not in marks]
        # The parts of a copy first: one that goes on while others stream is none that changes have to wait for.
        own.sort(key=lambda name: (name.kind is not ManifestKind.COPY, name.sequence))
        last = max(own, key=lambda name: name.sequence)
        schema = _manifest(self.storage, directory, last).schema
        return LoggedTable(self.storage, directory, generation, tuple(own), schema, tuple(gaps))


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """A table's generation that counts: one initial copy, and every change since."""

    storage: Storage = field(repr=False)
    directory: str
    generation: int
    names: tuple[ManifestName, ...] = field(repr=False)
    schema: ReplicatedTableSchema = field(repr=False)
    """As it is behind the last change."""
    missing: tuple[range, ...] = ()
    """Numbers of manifests that are not there, although later ones are."""

    def require_complete(self) -> None:
        """Raise DestinationError if a manifest is missing."""
        if self.missing:
            where = self.storage.address(f"{self.directory}/manifests")
            raise missing_manifests(self.missing, self.name, self.storage.root.partition("?")[0], where)

    @property
    def name(self) -> TableName:
        return self.schema.table.name

    def manifest(self, name: ManifestName) -> Manifest:
        return _manifest(self.storage, self.directory, name)

    def manifests(self) -> Iterator[Manifest]:
        """The parts of the copy, then the batches of changes in order."""
        for name in self.names:
            yield self.manifest(name)

    def files(self) -> list[str]:
        """Addresses of all files with rows and changes, the copy's first: each change is in one of them, once."""
        return [
            self.storage.address(file.path)
            for manifest in self.manifests()
            for step in manifest.steps
            if isinstance(step, StoredRows)
            for file in step.files
        ]


def _complete_names(storage: Storage, directory: str) -> tuple[list[ManifestName], list[range]]:
    """List the manifests that count, and the numbers that are missing among them.

    A directory that grows or is emptied meanwhile may be listed with a later file and without an earlier one. What two
    listings in a row lack is missing.
    """
    names = manifest_names(storage, directory)
    gaps = missing_sequences(names)
    while gaps:
        names, before = manifest_names(storage, directory), gaps
        gaps = missing_sequences(names)
        if any(gap in before for gap in gaps):
            break
    return names, gaps


def _manifest(storage: Storage, directory: str, name: ManifestName) -> Manifest:
    content = storage.read(f"{directory}/manifests/{name}")
    if content is None:
        msg = f"manifest {name} of {directory} is no longer there"
        raise DestinationError(msg, hint="the pipeline has removed the table meanwhile: read the log anew")
    return from_json(name, content)


def row_schema(schema: ReplicatedTableSchema) -> pa.Schema:
    """The columns of a table's rows, as a copy brings them."""
    return pa.schema([pa.field(c.name, conversion_for(c.type, c.typmod).arrow_type) for c in schema.columns])


def changes_schema(schema: ReplicatedTableSchema) -> pa.Schema:
    """The columns of `Changes.rows` for a table."""
    row = pa.struct(list(row_schema(schema)))
    return pa.schema([*CHANGE_FIELDS, pa.field("row", row), pa.field("old", row)])


def read_copied(storage: Storage, file: DataFile, schema: ReplicatedTableSchema) -> Iterator[pa.RecordBatch]:
    """The rows of a file of the initial copy."""
    wanted = row_schema(schema)
    return (copied_rows(batch, wanted) for batch in _batches(storage, file))


def read_changes(storage: Storage, file: DataFile, schema: ReplicatedTableSchema) -> Iterator[pa.RecordBatch]:
    """The changes of a file, as a batch of the pipeline has them."""
    wanted = changes_schema(schema)
    return (change_rows(batch, wanted) for batch in _batches(storage, file))


def read_rejected(storage: Storage, file: DataFile) -> Iterator[pa.RecordBatch]:
    """What stands beside them: values that no type holds."""
    return _batches(storage, file)


def _batches(storage: Storage, file: DataFile) -> Iterator[pa.RecordBatch]:
    """Read a file, verifying its pages. Raises DestinationError for one that is not as it was written."""
    rows = 0
    with storage.input(file.path) as source:
        try:
            with pq.ParquetFile(source, page_checksum_verification=True) as opened:
                for batch in opened.iter_batches():
                    rows += batch.num_rows
                    yield batch
        except (pa.ArrowException, OSError, ValueError) as error:
            # What the storage itself raises has a number.
            if getattr(error, "errno", None) is not None:
                raise
            raise _damaged(storage, file) from error
    if rows != file.rows:
        raise _damaged(storage, file)


def _damaged(storage: Storage, file: DataFile) -> DestinationError:
    return DestinationError(
        f"the file {storage.address(file.path)} of the log is damaged",
        hint=COPY_AGAIN,
        retry=RetryPolicy.MANUAL,
    )
