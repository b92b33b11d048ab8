"""The quarantine table: values that their type cannot hold, as Postgres sent them.

It is written before the rows it belongs to, so that a crash loses none of it. What comes again is left out by what the
table itself records: per source table the parts of its copy, and the LSN up to which its changes were looked through.
So all that a part or batch has goes into one commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import DestinationConflict, DestinationRejected
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema
from ..batch import Changes
from ..copied_parts import read_parts, write_parts
from ..rows import REJECTED_FIELDS, Rows
from .contract import LakeCatalog, LakeTable, NewTable, Wrapping
from .data_files import write_data
from .fence import Fence
from .files import TableLayout, Written
from .java_errors import TableGone
from .leftovers import PendingFiles
from .lookup import find
from .lost_json import LostJson
from .merge import delete_found
from .plan import TablePlan
from .record import PIPELINE

__all__ = ["Quarantine"]

_SOURCE_FIELDS = (pa.field("table_id", pa.int64()), pa.field("table_name", pa.string()))
_COLUMNS = pa.schema([*_SOURCE_FIELDS, *(field.with_nullable(True) for field in REJECTED_FIELDS)])
_ATTEMPTS = 3
_TYPES = {pa.int64(): "long", pa.string(): "string"}


@dataclass(frozen=True, slots=True)
class _Rejections:
    """Writes rejected values of one table, in a task; those of commits before `since` are there already."""

    layout: TableLayout
    table_id: int
    table_name: str
    since: int | None
    lost: LostJson | None
    """Finds them, where not they are given but the rows that had them."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Written:
        return write_data(self.layout, (self._named(batch) for batch in batches))

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.lost is not None:
            batch = self.lost(batch)
        if self.since is not None:
            batch = batch.filter(pc.greater_equal(batch["commit_lsn"], self.since))
        size = batch.num_rows
        names = [pa.repeat(pa.scalar(self.table_id, pa.int64()), size), pa.repeat(self.table_name, size)]
        return pa.RecordBatch.from_arrays([*names, *batch.columns], schema=_COLUMNS)


_Found = tuple[Rows, LostJson | None]
"""Rejected values, or rows that have lost JSON and how to find it."""


class Quarantine:
    """One table for all of a pipeline, made when the first value comes. Maintained like any other (`HeldTable`)."""

    copying = False

    def __init__(self, catalog: LakeCatalog, plan: TablePlan, pipeline_id: int, fence: Fence) -> None:
        self._catalog, self._plan = catalog, plan
        self._pipeline_id, self._fence = pipeline_id, fence
        self.lock = threading.RLock()
        self.table: LakeTable | None = None

    @property
    def name(self) -> tuple[str, ...]:
        return self._plan.name

    def open(self) -> None:
        """Look anew for the table of earlier runs, so that it is maintained though no value comes."""
        with self.lock:
            self.table = None
            self._found()

    def add_copied(self, source: ReplicatedTableSchema, rows: Rows, part: int, lost: tuple[str, ...]) -> None:
        """The values of a part of the copy, whose rows were written just now; of columns `lost` it has lost JSON."""
        found = _rejected(source, rows, lost, of_changes=False)
        if not found:
            return

        def add() -> None:
            table = self._made()
            setting = f"headrace.{source.table.id}.copied-parts"
            parts = read_parts(table.properties().get(setting, ""))
            if part not in parts:
                self._add(table, source, found, None, {setting: write_parts(parts | {part})})

        with self.lock:
            _repeated(add)

    def add_changes(self, steps: Sequence[Changes], end: Lsn, lost: tuple[str, ...]) -> None:
        """The values of one table's part of a batch that ends at `end`, whose rows were written just now."""
        found = [one for step in steps for one in _rejected(step.schema, step.rows, lost, of_changes=True)]
        if not found:
            return
        with self.lock:
            table, source = self._made(), steps[0].schema
            setting = f"headrace.{source.table.id}.lsn"
            known = table.properties().get(setting)
            since = None if known is None else Lsn.parse(known)
            if since is None or since < end:
                self._add(table, source, found, since, {setting: str(end)})

    def forget(self, table_id: int, *, rows_stay: bool = False) -> None:
        """Remove what is known of a source table, because it is copied anew. If its rows stay all the same, in a log,
        so do their values, and only what is told of the copy and the changes is new.
        """
        with self.lock:
            table = self._found()
            if table is None:
                return
            # Few files have rows of more than one table: whole files go.
            files = () if rows_stay else tuple(table.files().live.values())
            found = find(table.layout, files, pa.table({"table_id": pa.array([table_id], pa.int64())}))
            forgotten = {f"headrace.{table_id}.{suffix}" for suffix in ("copied-parts", "lsn")}
            if found or not forgotten.isdisjoint(table.properties()):
                table.add(delete_found(table.layout, found), dict.fromkeys(forgotten))

    def _add(
        self,
        table: LakeTable,
        source: ReplicatedTableSchema,
        found: Iterable[_Found],
        since: int | None,
        settings: dict[str, str | None],
    ) -> None:
        with PendingFiles(table.layout) as pending:
            for rows, lost in found:
                task = _Rejections(table.layout, source.table.id, str(source.table.name), since, lost)
                pending.add(*rows.in_tasks(task))
            table.add(Written(data=tuple(file for one in pending.written for file in one.data)), settings)

    def _made(self) -> LakeTable:
        if self._found() is None:
            self.table = self._wrapped(self._catalog.create(self._new_table()))
        assert self.table is not None
        return self.table

    def _found(self) -> LakeTable | None:
        """The table as it is now; None if there is none. Raises if it is not ours."""
        if self.table is not None:
            try:
                self.table.refresh()
            except TableGone:
                self.table = None
        if self.table is None:
            table = self._catalog.load(self._plan.name)
            found = None if table is None else self._wrapped(table)
            if found is not None and found.properties().get(PIPELINE) != str(self._pipeline_id):
                msg = f"the table {'.'.join(self._plan.name)} exists and was not made by this pipeline"
                raise DestinationRejected(msg, hint="drop it, or rename it")
            self.table = found
        return self.table

    def _wrapped(self, table: object) -> LakeTable:
        return self._catalog.wrapped(table, Wrapping(self._plan, ("table_id",), self._fence))

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
            {**self._plan.defaults, PIPELINE: str(self._pipeline_id)},
        )


def _repeated(action: Callable[[], None]) -> None:
    """Run an action again after a conflict: it reads from the table what has been committed meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        try:
            action()
        except DestinationConflict:
            continue
        return
    action()


def _rejected(source: ReplicatedTableSchema, rows: Rows, lost: tuple[str, ...], *, of_changes: bool) -> list[_Found]:
    rejected = rows.rejected()
    found: list[_Found] = [] if rejected is None else [(rejected, None)]
    # A batch may have rows of before and after a column came.
    lost = tuple(column.name for column in source.columns if column.name in lost)
    return [*found, (rows, LostJson(source, lost, of_changes))] if lost else found
