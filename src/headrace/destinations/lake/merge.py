"""Merging folded changes into a table: one task finds the rows they touch, writes deletion vectors and new data files.

Everything is read as it was before the batch. See `destinations.fold` for what the changes say.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..soft_delete import DELETED, DELETED_AT
from .columns import column_plan, lost_texts, struct_rows
from .data_files import write_data
from .deletion_vectors import Positions, read_positions, write_vectors
from .equal_rows import find_equal
from .files import LiveFile, TableLayout, Written
from .keyed_changes import KeyedChanges
from .lookup import Found, find
from .places import file_io, removed
from .reading import forget_replaced, read_rows

__all__ = ["Merge", "delete_found", "rewrite_deleted", "rewrite_filled"]

# Rows of a file that are read at once when all of it is written anew.
_ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True, slots=True)
class Merge:
    """Applies all folded changes of a table (`fold.folded_schema`) to its live files, in one task."""

    layout: TableLayout
    files: tuple[LiveFile, ...]
    key: tuple[str, ...] | None
    soft_delete: bool = False
    found_by: tuple[str, ...] = ()
    """The columns by which rows are found, if there is no key."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Written:
        read = list(batches)
        if not sum(batch.num_rows for batch in read):
            return Written()
        changes = pa.Table.from_batches(read).combine_chunks()
        forget_replaced(self.layout, self.files)
        return self._without_key(changes) if self.key is None else self._by_key(changes, self.key)

    def _by_key(self, changes: pa.Table, key: tuple[str, ...]) -> Written:
        keyed = KeyedChanges.read(self.layout, changes, key, insert_may_replace=self.soft_delete)
        found = find(self.layout, self.files, keyed.sought)
        added = [keyed.rows(found)]
        if self.soft_delete:
            added += self._flagged(keyed.deleted(found), changes.column("commit_time"))
        return replace(
            _written(self.layout, keyed.replaced(found), added), lost=_lost(self.layout, changes, keyed.table)
        )

    def _without_key(self, changes: pa.Table) -> Written:
        delete = pc.equal(changes.column("op"), "D")
        columns = column_plan(self.layout.schema_json)
        added = [struct_rows(changes.filter(pc.invert(delete)).column("row"), columns)]
        lost = _lost(self.layout, changes.filter(pc.invert(delete)), added[0])
        gone = changes.filter(delete)
        sought = struct_rows(gone.column("row"), columns).select(list(self.found_by))
        counts = gone.column("count").to_numpy()
        found = find_equal(self.layout, self.files, sought, counts, alive=DELETED if self.soft_delete else None)
        if self.soft_delete:
            added += self._flagged(found, gone.column("commit_time"))
        return replace(_written(self.layout, found, added), lost=lost)

    def _flagged(self, found: Sequence[Found], deleted_at: pa.ChunkedArray) -> Iterator[pa.Table]:
        """The rows found, as deleted; `deleted_at` tells when, by needle."""
        names = column_plan(self.layout.schema_json).arrow.names
        for one in found:
            rows = read_rows(self.layout, one.file, one.positions, names)
            yield _with_flags(rows, pa.repeat(pa.scalar(value=True), len(rows)), deleted_at.take(pa.array(one.needles)))


def rewrite_deleted(layout: TableLayout, files: Sequence[LiveFile], deleted_at: datetime.datetime) -> Written:
    """Flag every row that is there as deleted, for a TRUNCATE of a table that keeps deleted rows.

    A file with such a row is written anew as a whole and listed as emptied; one without stays as it is.
    """
    io, plan = file_io(layout), column_plan(layout.schema_json)
    touched: list[LiveFile] = []

    def live(file: LiveFile) -> Positions:
        return np.setdiff1d(np.arange(file.records), read_positions(io, file), assume_unique=True)

    def flagged() -> Iterator[pa.RecordBatch]:
        for file in touched:
            positions = live(file)
            for start in range(0, len(positions), _ROWS_AT_ONCE):
                rows = read_rows(layout, file, positions[start : start + _ROWS_AT_ONCE], plan.arrow.names)
                already = rows.column(DELETED)
                since = pc.if_else(already, rows.column(DELETED_AT), _moment(layout, deleted_at))
                yield from _with_flags(rows, pa.repeat(pa.scalar(value=True), len(rows)), since).to_batches()

    for file in files:
        if not pc.all(read_rows(layout, file, live(file), [DELETED]).column(DELETED), min_count=0).as_py():
            touched.append(file)
    written = write_data(layout, flagged())
    replaced = tuple(file.vector for file in touched if file.vector is not None)
    return Written(written.data, (), replaced, tuple(file.path for file in touched), written.rows)


def rewrite_filled(layout: TableLayout, files: Sequence[LiveFile], values: Mapping[str, pa.Scalar]) -> Written:
    """Write every row anew with a value in columns that its file does not have: they were added with a default."""
    io, names = file_io(layout), column_plan(layout.schema_json).arrow.names

    def filled() -> Iterator[pa.RecordBatch]:
        for file in files:
            live = np.setdiff1d(np.arange(file.records), read_positions(io, file), assume_unique=True)
            for start in range(0, len(live), _ROWS_AT_ONCE):
                rows = read_rows(layout, file, live[start : start + _ROWS_AT_ONCE], names)
                for name, value in values.items():
                    place = rows.schema.get_field_index(name)
                    rows = rows.set_column(place, name, pa.repeat(value, len(rows)))
                yield from rows.to_batches()

    written = write_data(layout, filled())
    replaced = tuple(file.vector for file in files if file.vector is not None)
    return Written(written.data, (), replaced, tuple(file.path for file in files), written.rows)


def delete_found(layout: TableLayout, found: Sequence[Found]) -> Written:
    """Delete the rows found, and no more."""
    return _written(layout, found, ())


def _written(layout: TableLayout, found: Sequence[Found], added: Iterable[pa.Table]) -> Written:
    """Write new rows and the vectors of those found; take everything back when it fails."""
    written = write_data(layout, (batch for table in added for batch in table.to_batches()))
    emptied = [one.file for one in found if len(one.positions) == one.file.live_records]
    remaining = [(one.file, one.positions) for one in found if len(one.positions) < one.file.live_records]
    try:
        vectors = write_vectors(layout, remaining)
    except BaseException:
        removed(file_io(layout), [file.path for file in written.data])
        raise
    touched = [*emptied, *(file for file, _ in remaining)]
    replaced = tuple(file.vector for file in touched if file.vector is not None)
    return Written(written.data, vectors, replaced, tuple(file.path for file in emptied), written.rows)


def _lost(layout: TableLayout, changes: pa.Table, rows: pa.Table) -> int:
    """How many JSON texts of new rows are lost in `rows`, which were made of all changes given."""
    if not column_plan(layout.schema_json).variants:
        return 0
    kept = pc.not_equal(changes.column("op"), "D")
    return lost_texts(pa.Table.from_struct_array(changes.column("row")).filter(kept), rows.filter(kept))


def _with_flags(rows: pa.Table, deleted: pa.Array, deleted_at: pa.ChunkedArray) -> pa.Table:
    for name, values in ((DELETED, deleted), (DELETED_AT, deleted_at)):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, values)
    return rows


def _moment(layout: TableLayout, moment: datetime.datetime) -> pa.Scalar:
    return pa.scalar(moment, column_plan(layout.schema_json).arrow.field(DELETED_AT).type)
