"""One table's part of a batch as operations of a commit, each made for the files and columns the one before leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from ...config.table_mode import TableMode
from ...errors import TableSchemaChanged
from ...events import Relation, Truncate
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema
from ..batch import Changes, Step, TableBatch
from ..change_log import change_log_schema
from ..existing_rows import existing_value
from ..fold import folded
from .changelog import LoggedChanges, log_truncate
from .contract import LakeTable
from .evolution.alteration import Alteration, CannotAlter
from .evolution.planning import Definition
from .files import TableLayout, Written
from .following import alteration, definition
from .merge import Merge, rewrite_deleted, rewrite_filled
from .operations import Files, Operation, key_ids
from .plan import TablePlan
from .record import version_of
from .variant_schema import variant_columns

__all__ = ["BatchSteps", "altered_layout", "together"]


class BatchSteps:
    """Goes through the steps. What it says of the table is so after those that it went through."""

    def __init__(self, plan: TablePlan, table: LakeTable, files: Files, applied: Lsn | None) -> None:
        """`applied`: up to where the table has everything; a relation before it was followed."""
        self.plan, self.table, self.files, self.applied = plan, table, files, applied
        self.layout = table.layout
        self.variants = set(variant_columns(table.layout.schema_json))
        """The columns that are, or were, VARIANT."""
        self._key: tuple[str, ...] | None = table.key
        self._definition: Definition | None = None
        self._version: Lsn | None = None

    def operations(self, part: TableBatch) -> Iterator[Operation]:
        for step in _since_truncate(part.steps) if self.plan.mode is TableMode.MIRROR else part.steps:
            operation = self._operation(step, part.schema)
            if operation is not None:
                self.files = self.files.after(operation.written, key_ids(self.layout.schema_json, self._key))
                yield operation

    def _operation(self, step: Step, schema: ReplicatedTableSchema) -> Operation | None:
        if isinstance(step, Relation):
            return self._altered(step, schema)
        if self.plan.mode is TableMode.CHANGELOG:
            return Operation(self._logged(step))
        if isinstance(step, Changes):
            return Operation(self._merged(step))
        if self.plan.mode is TableMode.MIRROR:
            self.files = Files(self.files.snapshot)
            return Operation(truncate=True)
        return Operation(rewrite_deleted(self.layout, tuple(self.files.live.values()), step.commit_time))

    def _altered(self, relation: Relation, schema: ReplicatedTableSchema) -> Operation | None:
        if self.applied is not None and relation.commit_lsn < self.applied:
            return None
        there = self._definition or definition(self.table, relation.old or schema)
        try:
            altered = alteration(self.plan, there, relation.new, relation.commit_lsn)
        except CannotAlter as error:
            msg = f"table {self.layout.name} cannot be altered as table {relation.new.table.name} of the source was"
            raise TableSchemaChanged(msg, detail=str(error)) from None
        self.layout = altered_layout(self.layout, altered)
        self.variants |= set(variant_columns(altered.schema_json))
        self._definition, self._version = there.after(altered), relation.commit_lsn
        self._key = self.plan.key(relation.new)
        if not altered.filled:
            return Operation(alteration=altered)
        values = {column.name: existing_value(column) for column in altered.filled}
        return Operation(rewrite_filled(self.layout, tuple(self.files.live.values()), values), alteration=altered)

    def _merged(self, step: Changes) -> Written:
        self._key, files = self.plan.key(step.schema), tuple(self.files.live.values())
        found_by = tuple(column.name for column in step.schema.found_by)
        merge = Merge(self.layout, files, self._key, self.plan.mode is TableMode.SOFT_DELETE, found_by)
        return together(folded(step).in_tasks(merge))

    def _logged(self, step: Changes | Truncate) -> Written:
        if self._version is None:
            self._version = version_of(self.table.properties())
        if isinstance(step, Truncate):
            return log_truncate(self.layout, step, self._version)
        schema = change_log_schema(pa.schema(list(step.rows.arrow_schema.field("row").type)))
        return together(step.rows.in_tasks(LoggedChanges(self.layout, schema, int(self._version))))


def altered_layout(layout: TableLayout, altered: Alteration) -> TableLayout:
    """What tasks must know of the table once it is altered."""
    before = {field["name"]: field["id"] for field in json.loads(layout.schema_json)["fields"]}
    after = {field["id"]: field["name"] for field in json.loads(altered.schema_json)["fields"]}
    sort_by = tuple((after[before[name]], descending) for name, descending in layout.sort_by)
    return replace(layout, schema_json=altered.schema_json, sort_by=sort_by)


def _since_truncate(steps: Sequence[Step]) -> Sequence[Step]:
    """What came before the last truncate leaves nothing but the table's columns."""
    last = max((index for index, step in enumerate(steps) if isinstance(step, Truncate)), default=0)
    return [*(step for step in steps[:last] if isinstance(step, Relation)), *steps[last:]]


def together(results: Sequence[Written]) -> Written:
    """What the tasks of one table wrote, together."""
    touched = [vector.referenced for written in results for vector in written.vectors]
    assert len(set(touched)) == len(touched), "of two vectors of one file, written by two tasks, one would be lost"
    return Written(
        data=tuple(file for written in results for file in written.data),
        vectors=tuple(vector for written in results for vector in written.vectors),
        replaced=tuple(vector for written in results for vector in written.replaced),
        emptied=tuple(path for written in results for path in written.emptied),
        rows=sum(written.rows for written in results),
        lost=sum(written.lost for written in results),
    )
