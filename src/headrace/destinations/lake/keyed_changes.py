"""Folded changes of a table with a key: the keys to look for, what is replaced by them, and the rows to add.

Values that a change did not send are taken from the destination's row, under the key it had before the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import DestinationError, RetryPolicy
from ...remedies import RESYNC
from ..fold.changes import Indexes, Mask
from ..fold.codes import combined_codes, key_column_codes
from .columns import column_plan, struct_rows
from .files import TableLayout
from .lookup import Found
from .reading import read_rows

__all__ = ["KeyedChanges"]


@dataclass(frozen=True, slots=True, eq=False)
class KeyedChanges:
    """All changes of a batch, one per key. A needle is a key that is looked for: a row of `sought`."""

    layout: TableLayout
    table: pa.Table
    """All rows, of deletes too, in the table's columns."""
    names: tuple[str, ...]
    """Columns of the rows, to whose positions `unchanged` refers."""
    unchanged: pa.ChunkedArray
    is_delete: Mask
    sought: pa.Table
    own: Indexes
    """By change: the needle that is its own key; -1 if that is not looked for."""
    source: Indexes
    """By change: the needle under which the destination has the values that were not sent."""

    @staticmethod
    def read(layout: TableLayout, changes: pa.Table, key: tuple[str, ...], *, insert_may_replace: bool) -> KeyedChanges:
        """`insert_may_replace`: a row of an insert's key may be there, one that was deleted at the source."""
        table = struct_rows(changes.column("row"), column_plan(layout.schema_json))
        op, origin = changes.column("op"), changes.column("origin")
        wanted = np.flatnonzero(np.ones(len(op), dtype=bool) if insert_may_replace else _mask(pc.not_equal(op, "I")))
        moved = np.flatnonzero(_mask(origin.is_valid()))
        keys = pa.concat_tables(
            [
                table.select(key).take(pa.array(wanted)),
                struct_rows(origin.take(pa.array(moved)), column_plan(layout.schema_json)).select(key),
            ]
        )
        sought, needles = _distinct(keys)
        own = np.full(len(op), -1)
        own[wanted] = needles[: len(wanted)]
        source = own.copy()
        source[moved] = needles[len(wanted) :]
        names = tuple(changes.schema.field("row").type.names)
        return KeyedChanges(
            layout, table, names, changes.column("unchanged"), _mask(pc.equal(op, "D")), sought, own, source
        )

    def replaced(self, found: Sequence[Found]) -> list[Found]:
        """The rows that are there no longer: those found under a change's own key."""
        return _chosen(found, self._change_of_needle(np.ones(len(self.own), dtype=bool)))

    def deleted(self, found: Sequence[Found]) -> list[Found]:
        """The rows that deletes take away, with the index of their change instead of that of a needle."""
        return _chosen(found, self._change_of_needle(self.is_delete))

    def rows(self, found: Sequence[Found]) -> pa.Table:
        """The rows to add, with the values that were not sent."""
        kept = np.flatnonzero(~self.is_delete)
        table = self._completed(found)
        return table if len(kept) == len(table) else table.take(pa.array(kept))

    def _change_of_needle(self, which: Mask) -> Indexes:
        change = np.full(len(self.sought), -1)
        at = np.flatnonzero(which & (self.own >= 0))
        change[self.own[at]] = at
        return change

    def _completed(self, found: Sequence[Found]) -> pa.Table:
        counts = pc.fill_null(pc.list_value_length(self.unchanged), 0).to_numpy()
        lacking = np.flatnonzero(counts)
        if not len(lacking):
            return self.table
        columns = pc.list_flatten(self.unchanged).to_numpy()
        cells = np.repeat(np.arange(len(counts)), counts)
        positions = np.unique(columns).tolist()
        fetched, place = self._fetched(found, lacking, [self.names[position] for position in positions])
        table = self.table
        for position in positions:
            name = self.names[position]
            at = np.arange(len(table))
            of_column = cells[columns == position]
            at[of_column] = len(table) + place[of_column]
            both = pa.chunked_array([*table.column(name).chunks, *fetched.column(name).chunks])
            index = table.schema.get_field_index(name)
            table = table.set_column(index, table.schema.field(name), both.take(pa.array(at)))
        return table

    def _fetched(self, found: Sequence[Found], lacking: Indexes, names: list[str]) -> tuple[pa.Table, Indexes]:
        """Columns of the rows under which the destination has what these changes lack; by change, where in there."""
        place = np.full(len(self.own), -1)
        parts, size = [], 0
        needed = np.zeros(len(self.sought), dtype=bool)
        needed[self.source[lacking]] = True
        at_needle = np.full(len(self.sought), -1)
        for one in found:
            hits = needed[one.needles]
            if hits.any():
                parts.append(read_rows(self.layout, one.file, one.positions[hits], names))
                at_needle[one.needles[hits]] = size + np.arange(len(parts[-1]))
                size += len(parts[-1])
        place[lacking] = at_needle[self.source[lacking]]
        missing = int((place[lacking] < 0).sum())
        if missing:
            raise DestinationError(
                f"table {self.layout.name} lacks {missing} rows that were updated at the source",
                detail="Postgres did not send large values that stayed as they were, and the rows that have them are "
                "not in the table: a filter left them out until now, or rows were deleted here by somebody else",
                hint=f"copy the table again: {RESYNC}; if it has a filter, give it REPLICA IDENTITY FULL first",
                retry=RetryPolicy.MANUAL,
            )
        return pa.concat_tables(parts), place


def _distinct(keys: pa.Table) -> tuple[pa.Table, Indexes]:
    """The distinct rows, and for each row which of them it is."""
    if not len(keys):
        return keys, np.empty(0, dtype=np.int64)
    codes = combined_codes([key_column_codes(column) for column in keys.columns])
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    return (keys if len(first) == len(keys) and (which == np.arange(len(keys))).all() else keys.take(first)), which


def _chosen(found: Sequence[Found], change_of_needle: Indexes) -> list[Found]:
    chosen = []
    for one in found:
        change = change_of_needle[one.needles]
        hits = change >= 0
        if hits.any():
            chosen.append(Found(one.file, one.positions[hits], change[hits]))
    return chosen


def _mask(values: pa.ChunkedArray) -> Mask:
    mask: Mask = values.to_numpy()
    return mask.astype(bool, copy=False)
