"""Values set aside, as a quarantine may show them: none of a column that is hidden, nor of a row that is left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..row_keys import row_keys
from .batches import filtered, matches
from .table_transform import TableTransform

__all__ = ["rejected_changes", "rejected_rows"]


def rejected_rows(transform: TableTransform, rejected: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Of the initial copy. A row is told by its key; of rows that have the same, or none, all must match."""
    kept = _shown(transform, rejected)
    if transform.condition is None or not kept.num_rows:
        return _with_key(transform, kept)
    keys, fits = row_keys(transform.source, rows), matches(transform, rows)
    out = keys.filter(pc.invert(fits))
    inside = pc.and_(pc.is_in(kept["key"], keys), pc.invert(pc.is_in(kept["key"], out)))
    return _with_key(transform, kept.filter(inside))


def rejected_changes(transform: TableTransform, rejected: pa.RecordBatch, changes: pa.RecordBatch) -> pa.RecordBatch:
    """Of changes: those whose new row the destination gets."""
    kept = _shown(transform, rejected)
    if transform.condition is None or not kept.num_rows:
        return _with_key(transform, kept)
    left = filtered(transform, changes)
    left = left.filter(left["row"].is_valid())
    return _with_key(transform, kept.filter(pa.array(np.isin(_places(kept), _places(left)))))


def _shown(transform: TableTransform, rejected: pa.RecordBatch) -> pa.RecordBatch:
    hidden = pa.array(sorted(transform.hidden), pa.string())
    return rejected.filter(pc.invert(pc.is_in(rejected["column"], hidden)))


def _with_key(transform: TableTransform, rejected: pa.RecordBatch) -> pa.RecordBatch:
    """A key that is hidden tells no row."""
    if not transform.hides_key:
        return rejected
    columns = [pa.nulls(len(rejected), f.type) if f.name == "key" else rejected[f.name] for f in rejected.schema]
    return pa.RecordBatch.from_arrays(columns, schema=rejected.schema)


def _places(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    places = np.empty(batch.num_rows, dtype=[("lsn", "i8"), ("ordinal", "i8")])
    places["lsn"], places["ordinal"] = batch["commit_lsn"].to_numpy(), batch["tx_ordinal"].to_numpy()
    return places
