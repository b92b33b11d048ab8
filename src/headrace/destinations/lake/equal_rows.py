"""Finding rows by their whole value, in tables without key: as many of each as are asked for, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..fold.changes import Indexes
from ..fold.codes import combined_codes, value_codes
from .bounds import SoughtValues, sought_values
from .deletion_vectors import Positions
from .files import LiveFile, TableLayout
from .lookup import Found, may_hold, segments_of, without_deleted
from .reading import OpenedFile, read_rows

__all__ = ["find_equal"]

# Columns by which rows are left out before all columns of the others are read.
_TELLING_COLUMNS = 2


def find_equal(
    layout: TableLayout, files: Sequence[LiveFile], rows: pa.Table, counts: Indexes, *, alive: str | None
) -> list[Found]:
    """Find, of each of these rows, which are distinct, up to `counts` rows that equal it in all its columns.

    NULL equals NULL. `alive` names a column that must be false in what is found.
    """
    left = np.array(counts)
    sought = _telling(rows)
    found = []
    for file in files:
        if not left.any():
            break
        if not file.live_records or not may_hold(layout, file, sought):
            continue
        positions = _candidates(layout, file, rows, sought)
        if len(positions):
            one = _taken(_equal(layout, file, positions, rows, alive), left)
            if len(one.positions):
                found.append(one)
    return found


def _telling(rows: pa.Table) -> dict[str, SoughtValues | None]:
    """The columns with most distinct values, of types that a hash table takes and compares as `value_codes` does."""
    distinct = {
        field.name: pc.count_distinct(rows.column(field.name), mode="all").as_py()
        for field in rows.schema
        if not (pa.types.is_nested(field.type) or pa.types.is_floating(field.type))
    }
    names = sorted(distinct, key=lambda name: -distinct[name])[:_TELLING_COLUMNS]
    return {name: sought_values(rows.column(name)) for name in names}


def _candidates(
    layout: TableLayout, file: LiveFile, rows: pa.Table, sought: dict[str, SoughtValues | None]
) -> Positions:
    """Positions of live rows that have one of the values sought in each of these columns."""
    if not sought:
        positions = np.arange(file.records)
    else:
        with closing(OpenedFile(layout, file)) as one:
            parts = []
            for segment in segments_of(one, sought):
                mask = np.ones(segment.rows, dtype=bool)
                for name, column in zip(sought, segment.columns, strict=True):
                    mask &= pc.is_in(column, rows.column(name).combine_chunks()).to_numpy()
                parts.append(np.flatnonzero(mask) + segment.start)
        positions = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return positions[without_deleted(layout, file, positions)] if len(positions) else positions


def _equal(layout: TableLayout, file: LiveFile, positions: Positions, rows: pa.Table, alive: str | None) -> Found:
    """Of these positions those whose row equals one sought."""
    names = rows.column_names
    read = read_rows(layout, file, positions, [*names, alive] if alive else names)
    codes = combined_codes(
        [value_codes(pa.chunked_array([*rows.column(name).chunks, *read.column(name).chunks])) for name in names]
    )
    needle_of_code = np.full(int(codes.max()) + 1, -1)
    needle_of_code[codes[: len(rows)]] = np.arange(len(rows))
    needles = needle_of_code[codes[len(rows) :]]
    match = needles >= 0
    if alive:
        match &= ~read.column(alive).to_numpy()
    return Found(file, positions[match], needles[match])


def _taken(found: Found, left: Indexes) -> Found:
    """As many of the rows found as are left to find; what is left is less by them."""
    order = np.argsort(found.needles, kind="stable")
    needles = found.needles[order]
    # The place of each row among those of its needle.
    starts = np.searchsorted(needles, needles)
    kept = np.arange(len(needles)) - starts < left[needles]
    left -= np.bincount(needles[kept], minlength=len(left))
    chosen = np.sort(order[kept])
    return Found(found.file, found.positions[chosen], found.needles[chosen])
