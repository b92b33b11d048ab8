"""Rows with changes applied one by one, in Python: for destinations that hold little and are asked seldom.

Real destinations fold and merge; this is the plain meaning of a change, against which those can be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ProtocolError
from ..events import Relation, Truncate
from ..schema import ReplicatedTableSchema
from .existing_rows import existing_values
from .fold import fold_key

__all__ = ["ReadChanges", "ReadStep", "changed"]

_Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReadChanges:
    """The rows of a `Changes`, read."""

    schema: ReplicatedTableSchema
    table: pa.Table

    def __post_init__(self) -> None:
        """Raises ProtocolError, as the fold does: which row a change is of must be certain."""
        if fold_key(self.schema) is not None:
            return
        whole = pc.fill_null(pc.equal(self.table["old_kind"], "O"), fill_value=False)
        if not pc.all(pc.or_(pc.equal(self.table["op"], "I"), whole), min_count=0).as_py():
            raise ProtocolError(
                "an update or delete came without its old row, in a table without key",
                hint="give the table a primary key, or REPLICA IDENTITY FULL, and copy it again",
            )


ReadStep = ReadChanges | Relation | Truncate


def changed(rows: pa.Table, steps: Iterable[ReadStep]) -> pa.Table:
    """The rows after these steps. Takes time and memory for all rows, however few the changes."""
    for step in _joined(steps):
        if isinstance(step, Truncate):
            rows = rows.slice(0, 0)
        elif isinstance(step, Relation):
            rows = _altered(rows, step)
        else:
            rows = _with_changes(rows, step)
    return rows


def _joined(steps: Iterable[ReadStep]) -> Iterator[ReadStep]:
    """Changes that follow each other under one schema as one step: the rows are taken apart once for all of them."""
    for schema, group in groupby(steps, lambda step: step.schema if isinstance(step, ReadChanges) else None):
        if schema is None:
            yield from group
        else:
            yield ReadChanges(schema, pa.concat_tables(step.table for step in group if isinstance(step, ReadChanges)))


def _altered(rows: pa.Table, relation: Relation) -> pa.Table:
    """Columns renamed, dropped, widened; one that is new shows what the source shows in rows older than it."""
    if relation.old is None:
        return rows
    names = {column.attnum: column.name for column in relation.old.columns}
    columns = {}
    for column in relation.new.columns:
        existing = existing_values(column, len(rows))
        known = names.get(column.attnum)
        columns[column.name] = existing if known is None else rows.column(known).cast(existing.type)
    return pa.table(columns)


def _with_changes(rows: pa.Table, changes: ReadChanges) -> pa.Table:
    row_type = changes.table.schema.field("row").type
    arrow_schema = pa.schema([row_type.field(i) for i in range(row_type.num_fields)])
    held = _Held(changes.schema, arrow_schema.names)
    held.insert(_tuples(rows.columns))
    for change in _changes(changes.table):
        held.apply(*change)
    columns = zip(*held.rows(), strict=True) if held.count else ([] for _ in arrow_schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, arrow_schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema)


def _changes(table: pa.Table) -> Iterator[tuple[str, Sequence[int], _Values, _Values | None]]:
    """op, unchanged positions, the new row (all None for a delete), the old one if it was sent."""
    new, old = (_tuples(table[name].combine_chunks().flatten()) for name in ("row", "old"))
    operations, unchanged, kinds = (table[name].to_pylist() for name in ("op", "unchanged", "old_kind"))
    for op, positions, kind, row, old_row in zip(operations, unchanged, kinds, new, old, strict=True):
        yield op, positions or (), row, None if kind is None else old_row


def _tuples(columns: Sequence[pa.Array]) -> Iterator[_Values]:
    return zip(*(column.to_pylist() for column in columns), strict=True)


class _Held:
    """Rows by key, or by all that identifies them where the table has no key: then equal rows stand together."""

    def __init__(self, schema: ReplicatedTableSchema, names: Sequence[str]) -> None:
        self._keyed = fold_key(schema) is not None
        self._key = [names.index(column.name) for column in schema.found_by]
        self._rows: dict[str, list[_Values]] = {}

    @property
    def count(self) -> int:
        return sum(map(len, self._rows.values()))

    def rows(self) -> Iterator[_Values]:
        return (row for equal in self._rows.values() for row in equal)

    def insert(self, rows: Iterable[_Values]) -> None:
        for row in rows:
            if self._keyed:
                self._rows[self._of(row)] = [row]
            else:
                self._rows.setdefault(self._of(row), []).append(row)

    def apply(self, op: str, unchanged: Sequence[int], row: _Values, old: _Values | None) -> None:
        if op == "I":
            self.insert([row])
            return
        replaced = self._remove(old if old is not None else row)
        if op == "U":
            kept = [value if i not in unchanged or replaced is None else replaced[i] for i, value in enumerate(row)]
            self.insert([tuple(kept)])

    def _remove(self, row: _Values) -> _Values | None:
        """Remove one row with these values, or this key; returns it."""
        key = self._of(row)
        equal = self._rows.get(key)
        if equal is None:
            return None
        removed = equal.pop()
        if not equal:
            del self._rows[key]
        return removed

    def _of(self, row: _Values) -> str:
        # Its text, not the values: NaN is not equal to itself, and lists cannot be looked up.
        return repr([row[i] for i in self._key])
