"""What is kept of a value that no Arrow type holds: where it stood and what Postgres sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..destinations.row_keys import row_keys
from ..destinations.rows import REJECTED_FIELDS
from ..errors import UnrepresentableKey
from ..pgoutput.changes import ChangeBatch
from ..pgtypes.contract import Rejected
from ..pgtypes.registry import unrepresentable_values
from ..remedies import RESYNC
from ..schema import ReplicatedTableSchema

__all__ = ["rejected_changes", "rejected_columns", "rejected_rows", "require_keys"]


def require_keys(schema: ReplicatedTableSchema, rejected: Collection[str]) -> None:
    """Raise UnrepresentableKey where a column with rejected values belongs to a key.

    The value is NULL in the rows: by NULL no row is found, and different keys would be taken for one.
    """
    columns = [column for column in schema.key_columns if column.name in rejected]
    if not columns:
        return
    names = ", ".join(column.name for column in columns)
    kinds = {unrepresentable_values(column.type, column.typmod) for column in columns}
    name = schema.table.name
    raise UnrepresentableKey(
        f"table {name} has a value in {names}, of its key, that the column's type at the destination cannot hold",
        detail="; ".join(sorted(kind for kind in kinds if kind)) or None,
        hint=f"copy it again, which keeps {names} as text: {RESYNC}",
        table_id=schema.table.id,
        columns=tuple(column.name for column in columns),
    )


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
    here, at = _among(found, kept)
    rows = kept.take(pa.array(at[here]))
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


def rejected_columns(decoded: ChangeBatch, kept: pa.RecordBatch) -> frozenset[str]:
    """Name the columns with a rejected value in the changes that are kept, in their new or their old row."""
    here, _ = _among(decoded.rejected, kept)
    return frozenset(decoded.rejected.filter(pa.array(here)).column("column").to_pylist())


def _among(
    rejected: pa.RecordBatch, kept: pa.RecordBatch
) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Tell which rejected values stand in changes that are kept, and in which of these."""
    place, wanted = _places(kept), _places(rejected)
    order = np.argsort(place)
    at = np.minimum(np.searchsorted(place[order], wanted), len(place) - 1)
    return np.asarray(place[order][at] == wanted), order[at]


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
