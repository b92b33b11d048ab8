"""Transforms by a Python function, `transform(batch, table) -> batch`: an Arrow batch in, another one out, row by row.

The function is called where rows are read: in tasks, and in the driver for small batches. For each table version it is
first called in the driver with sample rows, to learn what it makes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from ...config.transforms import TransformsConfig
from ...events import UNCHANGED, Delete, Insert, OldRowKind, Row
from ...pgtypes.python_values import python_rows
from ...schema import ReplicatedTableSchema
from ..contract import DestinationContext
from ..rows import Rows
from .contract import RowEvent, Transform
from .events import arrow_rows
from .hook import Hook
from .hooked_batches import kept_aside, transform_changes, transform_known, transform_rows
from .hooked_table import HookedTable, hooked_table
from .probing import probe
from .table_transform import row_schema

__all__ = ["HookTransforms"]


class HookTransforms:
    """Implements `Transforms`."""

    def __init__(self, config: TransformsConfig) -> None:
        self._hooks = {name: Hook.named(table.transform) for name, table in config.tables.items() if table.transform}
        self._of: dict[int, Hook | None] = {}

    def startup(self, context: DestinationContext) -> None:
        """Nothing to do: the function is tried when a table is asked for."""

    def of(self, schema: ReplicatedTableSchema) -> Transform | None:
        """By the table's OID, once it was seen under the name that settings give: renamed, it stays what it is."""
        hook = self._of.setdefault(schema.table.id, self._hooks.get(str(schema.table.name)))
        if hook is None:
            return None
        found = probe(hook, schema)
        return _HookTransform(hook, hooked_table(schema, found.made, found.origins, found.indispensable))


@dataclass(frozen=True, slots=True)
class _HookTransform:
    """Implements `Transform`."""

    hook: Hook
    table: HookedTable

    @property
    def target(self) -> ReplicatedTableSchema:
        return self.table.target

    def rows(self, rows: Rows) -> Rows:
        function = partial(transform_rows, self.hook, self.table)
        return rows.mapped(function, self.table.fields, partial(kept_aside, self.table))

    def changes(self, rows: Rows) -> Rows:
        row = pa.struct(list(self.table.fields))
        after = pa.schema([f.with_type(row) if f.name in ("row", "old") else f for f in rows.arrow_schema])
        function = partial(transform_changes, self.hook, self.table, after)
        return rows.mapped(function, after, partial(kept_aside, self.table))

    def events(self, events: Sequence[RowEvent]) -> Sequence[RowEvent | None]:
        made = self._made([side for event in events for side in _sides(event)])
        return [self._event(event, made) for event in events]

    def follows(self, old: Transform | None) -> bool:
        """Columns that are computed otherwise, or from other types, have other values in rows that are there."""
        before = old.table.computed() if isinstance(old, _HookTransform) else {}
        return all(before.get(attnum) == made for attnum, made in self.table.computed().items())

    def _made(self, rows: Sequence[Row]) -> dict[int, dict[str, Any]]:
        """What becomes of each row, by its id."""
        by_unsent: dict[frozenset[str], list[Row]] = {}
        for row in rows:
            by_unsent.setdefault(frozenset(n for n, value in row.items() if value is UNCHANGED), []).append(row)
        fields, made = row_schema(self.table.source), dict[int, dict[str, Any]]()
        for unsent, some in by_unsent.items():
            (batch,) = arrow_rows(fields, some).to_batches()
            staying = {self.table.fields.names[i]: UNCHANGED for i in self.table.staying(unsent)}
            found = python_rows(transform_known(self.hook, self.table, batch, unsent))
            made.update((id(row), result | staying) for row, result in zip(some, found, strict=True))
        return made

    def _event(self, event: RowEvent, made: dict[int, dict[str, Any]]) -> RowEvent:
        target = self.table.target
        if isinstance(event, Insert):
            return replace(event, schema=target, row=made[id(event.row)])
        old = None if event.old is None else made.get(id(event.old)) or self._key(event.old)
        if isinstance(event, Delete):
            return replace(event, schema=target, old=old or {})
        return replace(event, schema=target, row=made[id(event.row)], old=old)

    def _key(self, old: Row) -> dict[str, object]:
        kept = self.table.kept
        return {kept[name]: value for name, value in old.items() if name in kept}


def _sides(event: RowEvent) -> Iterable[Row]:
    """The whole rows of an event; an old key is none."""
    if not isinstance(event, Delete):
        yield event.row
    if not isinstance(event, Insert) and event.old is not None and event.old_kind is OldRowKind.FULL:
        yield event.old
