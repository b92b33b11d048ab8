"""What is kept of a value that no Arrow type holds: where it stood and what Postgres sent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..destinations.row_keys import row_keys
from ..destinations.rows import REJECTED_FIELDS
from ..pgoutput.changes import ChangeBatch
from ..pgtypes.contract import Rejected
from ..schema import ReplicatedTableSchema

__all__ = ["rejected_changes", "rejected_rows"]


def rejected_rows(
    schema: ReplicatedTableSchema, rows: pa.RecordBatch, rejected: Mapping[str, Rejected]
) -> pa.RecordBatch:
    """Of a batch of the initial copy."""
    parts = [
        _quarantined(name, values.texts, row_keys(schema, rows.take(pa.array(values.positions))))
        for name, values in rejected.items()
    ]
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=REJECTED_FIELDS)


def rejected_changes(schema: ReplicatedTableSchema, decoded: ChangeBatch, kept: pa.RecordBatch) -> pa.RecordBatch:
    """Of the changes that are kept; values of old rows only tell what is known already and are left out."""
    found = decoded.rejected.filter(pc.invert(decoded.rejected.column("old")))
    place = _places(kept)
    wanted = _places(found)
    order = np.argsort(place)
    at = np.searchsorted(place[order], wanted)
    here = (at < len(place)) & (place[order][np.minimum(at, len(place) - 1)] == wanted)
    rows = kept.take(pa.array(order[at[here]]))
    found = found.filter(pa.array(here))
    keys = row_keys(schema, pa.RecordBatch.from_struct_array(rows.column("row")))
    columns = [
        keys,
        found.column("column"),
        found.column("text"),
        found.column("commit_lsn"),
        found.column("tx_ordinal"),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=REJECTED_FIELDS)


def _quarantined(name: str, texts: pa.Array, keys: pa.Array) -> pa.RecordBatch:
    nothing = pa.nulls(len(texts), pa.int64())
    return pa.RecordBatch.from_arrays(
        [keys, pa.repeat(name, len(texts)), texts, nothing, nothing], schema=REJECTED_FIELDS
    )


def _places(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    places = np.empty(batch.num_rows, dtype=[("lsn", "i8"), ("ordinal", "i8")])
    places["lsn"] = batch.column("commit_lsn").to_numpy()
    places["ordinal"] = batch.column("tx_ordinal").to_numpy()
    return places
