"""The quarantine table: values that their Iceberg type cannot hold, as Postgres sent them.

It is written before the rows it belongs to, so that a crash loses none of it. What comes again is left out by what the
table itself records: per source table the parts of its copy, and the LSN up to which its changes were looked through.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...config.iceberg import IcebergConfig, IcebergTableConfig
from ...config.table_mode import TableMode
from ...errors import DestinationRejected
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema
from ..batch import Changes
from ..rows import REJECTED_FIELDS, Rows
from .catalog import Catalog, NewTable
from .data_files import write_data
from .files import TableLayout, Written
from .java import java_errors
from .leftovers import discard
from .plan import TablePlan
from .record import PIPELINE, read_parts, write_parts

__all__ = ["Quarantine"]

_SOURCE_FIELDS = (pa.field("table_id", pa.int64()), pa.field("table_name", pa.string()))
_COLUMNS = pa.schema([*_SOURCE_FIELDS, *(field.with_nullable(True) for field in REJECTED_FIELDS)])
_TYPES = {pa.int64(): "long", pa.string(): "string"}


@dataclass(frozen=True, slots=True)
class _Rejections:
    """Writes rejected values of one table, in a task; those of commits before `since` are there already."""

    layout: TableLayout
    table_id: int
    table_name: str
    since: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Written:
        return write_data(self.layout, (self._named(batch) for batch in batches))

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.since is not None:
            batch = batch.filter(pc.greater_equal(batch["commit_lsn"], self.since))
        size = batch.num_rows
        names = [pa.repeat(pa.scalar(self.table_id, pa.int64()), size), pa.repeat(self.table_name, size)]
        return pa.RecordBatch.from_arrays([*names, *batch.columns], schema=_COLUMNS)


class Quarantine:
    """One table for all of a pipeline, made when the first value comes."""

    def __init__(self, catalog: Catalog, settings: IcebergConfig, pipeline_id: int, file_prefix: str) -> None:
        self._catalog, self._pipeline_id, self._file_prefix = catalog, pipeline_id, file_prefix
        name = ("headrace", f"quarantine_{pipeline_id}")
        self._plan = TablePlan(name, TableMode.CHANGELOG, IcebergTableConfig(), settings)
        self._lock = threading.Lock()

    def add_copied(self, source: ReplicatedTableSchema, rows: Rows, part: int) -> None:
        """The rejected values of a part of the copy, whose rows were written just now."""
        rejected = rows.rejected()
        if rejected is None:
            return
        with self._lock:
            table = self._made()
            setting = f"headrace.{source.table.id}.copied-parts"
            parts = read_parts(self._catalog.java.mapping(table.properties()).get(setting, ""))
            if part not in parts:
                self._add(table, source, rejected, None, {setting: write_parts(parts | {part})})

    def add_changes(self, changes: Changes, end: Lsn) -> None:
        """The rejected values of a batch that ends at `end`, whose rows were written just now."""
        rejected = changes.rows.rejected()
        if rejected is None:
            return
        with self._lock:
            table = self._made()
            setting = f"headrace.{changes.schema.table.id}.lsn"
            known = self._catalog.java.mapping(table.properties()).get(setting)
            since = None if known is None else Lsn.parse(known)
            if since is None or since < end:
                self._add(table, changes.schema, rejected, since, {setting: str(end)})

    def forget(self, table_id: int) -> None:
        """Remove what is known of a source table, because it is copied anew."""
        with self._lock, java_errors("clean the quarantine table"):
            table = self._found()
            if table is None:
                return
            transaction = table.newTransaction()
            expressions = self._catalog.java.iceberg.expressions.Expressions
            # Partitioned by table_id: whole files go.
            transaction.newDelete().deleteFromRowFilter(expressions.equal("table_id", table_id)).commit()
            properties = transaction.updateProperties()
            for suffix in ("copied-parts", "lsn"):
                properties.remove(f"headrace.{table_id}.{suffix}")
            properties.commit()
            transaction.commitTransaction()

    def _add(
        self, table: Any, source: ReplicatedTableSchema, rejected: Rows, since: int | None, settings: dict[str, str]
    ) -> None:
        java = self._catalog.java
        layout = self._plan.layout(java, table, self._file_prefix, self._catalog.io_properties)
        task = _Rejections(layout, source.table.id, str(source.table.name), since)
        written = rejected.in_tasks(task)
        try:
            with java_errors("commit to the quarantine table"):
                transaction = table.newTransaction()
                append = transaction.newAppend()
                for file in (file for result in written for file in result.data):
                    append.appendFile(java.content_file(file.json, table.specs()))
                append.commit()
                properties = transaction.updateProperties()
                for name, value in settings.items():
                    properties.set(name, value)
                properties.commit()
                transaction.commitTransaction()
        except BaseException:
            discard(layout, written)
            raise

    def _made(self) -> Any:
        return self._found() or self._catalog.create(self._new_table())

    def _found(self) -> Any | None:
        table = self._catalog.load(self._plan.name)
        owner = None if table is None else self._catalog.java.mapping(table.properties()).get(PIPELINE)
        if table is not None and owner != str(self._pipeline_id):
            msg = f"the Iceberg table {'.'.join(self._plan.name)} exists and was not made by this pipeline"
            raise DestinationRejected(msg, hint="drop it, or rename it")
        return table

    def _new_table(self) -> NewTable:
        fields = [
            {"id": number, "name": field.name, "required": False, "type": _TYPES[field.type]}
            for number, field in enumerate(_COLUMNS, start=1)
        ]
        by_table = {"name": "table_id", "transform": "identity", "source-id": 1, "field-id": 1000}
        return NewTable(
            self._plan.name,
            {"type": "struct", "schema-id": 0, "fields": fields},
            {"spec-id": 0, "fields": [by_table]},
            {"order-id": 0, "fields": []},
            {"format-version": "3", PIPELINE: str(self._pipeline_id)},
        )
