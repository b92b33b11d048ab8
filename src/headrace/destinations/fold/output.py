"""The form of folded changes, and how a table of them is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .changes import Indexes, Mask, ReadChanges

__all__ = ["APPEND", "DELETE", "UPSERT", "Outcome", "folded_schema", "folded_table", "struct_of", "taken"]

APPEND, UPSERT, DELETE = b"IUD"

_UNCHANGED = pa.list_(pa.int32())


def folded_schema(row_type: pa.StructType, key: tuple[str, ...] | None) -> pa.Schema:
    """The columns of a folded table whose rows are of this type. Only a table with a key has `origin`."""
    fields = [
        # I: add the row, it was not there before the batch. U: the row may be there. D: it is there; take it away.
        pa.field("op", pa.string(), nullable=False),
        # Those of the change that decided the final state.
        pa.field("commit_lsn", pa.int64(), nullable=False),
        pa.field("tx_ordinal", pa.int64(), nullable=False),
        pa.field("xid", pa.int64(), nullable=False),
        pa.field("commit_time", pa.timestamp("us", "UTC"), nullable=False),
        # How many equal rows to take away: above 1 only for a D in a table without key.
        pa.field("count", pa.int64(), nullable=False),
        # 0-based positions of columns that keep the value the destination has; NULL where there are none.
        pa.field("unchanged", _UNCHANGED),
    ]
    if key is not None:
        # The key under which the destination has those values, as of before the batch, if it is not the row's own.
        fields.append(pa.field("origin", pa.struct([row_type.field(name) for name in key])))
    # A D has the key's columns only; in a table without key it has all.
    return pa.schema([*fields, pa.field("row", row_type, nullable=False)])


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One folded change per item: its operation as a letter and the change that decided it."""

    op: npt.NDArray[np.uint8]
    change: Indexes
    row: pa.StructArray | pa.ChunkedArray
    unchanged: pa.ListArray | None = None
    origin: pa.StructArray | None = None
    count: Indexes | None = None


def folded_table(changes: ReadChanges, key: tuple[str, ...] | None, outcome: Outcome) -> pa.Table:
    schema = folded_schema(changes.row_type, key)
    size = len(outcome.op)
    columns = [
        _letters(outcome.op),
        *(_envelope(changes, name, outcome.change) for name in ("commit_lsn", "tx_ordinal", "xid", "commit_time")),
        pa.array(np.ones(size, dtype=np.int64) if outcome.count is None else outcome.count),
        pa.nulls(size, _UNCHANGED) if outcome.unchanged is None else outcome.unchanged,
    ]
    if key is not None:
        columns.append(pa.nulls(size, schema.field("origin").type) if outcome.origin is None else outcome.origin)
    return pa.Table.from_arrays([*columns, outcome.row], schema=schema)


def taken(column: pa.ChunkedArray, indexes: Indexes, missing: Mask | None = None) -> pa.Array:
    """The values at these indexes, NULL where `missing`."""
    values = column.take(pa.array(indexes, mask=missing))
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def struct_of(fields: Sequence[pa.Field], children: Sequence[pa.Array], absent: Mask | None = None) -> pa.StructArray:
    mask = None if absent is None else pa.array(absent)
    return pa.StructArray.from_arrays(list(children), fields=list(fields), mask=mask)


def _envelope(changes: ReadChanges, name: str, change: Indexes) -> pa.ChunkedArray:
    return changes.table.column(name).take(pa.array(change))


def _letters(letters: npt.NDArray[np.uint8]) -> pa.StringArray:
    offsets = np.arange(len(letters) + 1, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(letters), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters))]
    )
