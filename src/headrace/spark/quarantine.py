"""What is kept of a value that no Arrow type holds: where it stood and what Postgres sent."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
        _quarantined(name, values.texts, _keys(schema, rows.take(pa.array(values.positions))))
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
    keys = _keys(schema, pa.RecordBatch.from_struct_array(rows.column("row")))
    columns = [
        keys,
        found.column("column"),
        found.column("text"),
        found.column("commit_lsn"),
        found.column("tx_ordinal"),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=REJECTED_FIELDS)


def _keys(schema: ReplicatedTableSchema, rows: pa.RecordBatch) -> pa.StringArray:
    """Each row's identity (the primary key where there is one) as a JSON object of texts; NULL without one."""
    columns = [column for column in schema.table.key if column in schema.mask] or list(schema.identity)
    names = [column.name for column in columns if _castable(rows.schema.field(column.name).type)]
    if not names:
        return pa.nulls(rows.num_rows, pa.string())
    members = [_member(name, rows.column(name)) for name in names]
    return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*members, ", "), "}", "")


def _castable(type: pa.DataType) -> bool:
    return not (pa.types.is_nested(type) or pa.types.is_binary(type))


def _member(name: str, values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        text = pc.replace_substring(text, plain, escaped)
    quoted = pc.binary_join_element_wise('"', text, '"', "")
    return pc.binary_join_element_wise(f"{json.dumps(name)}: ", pc.fill_null(quoted, "null"), "")


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
