"""The inserts, updates and deletes of one table and one schema version, as one record batch.

The columns are those of CHANGE_FIELDS, then `row` and `old`, structs of the table's columns: `row` is NULL for a
delete, `old` where nothing of the old row was sent. In an old key (`old_kind` K) only the key's columns have values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import ProtocolError
from ..pgtypes.contract import Conversion, Rejected
from .batch import MessageBatch
from .columns import bitmap, convert
from .envelope import Envelope
from .messages import Relation
from .tuples import UNCHANGED_TOAST, Cells, Positions, walk_tuples

__all__ = ["CHANGE_FIELDS", "REJECTED_SCHEMA", "ChangeBatch", "change_batch"]

INSERT, UPDATE, DELETE = b"IUD"
NEW, OLD_KEY, OLD_ROW = b"NKO"

CHANGE_FIELDS = (
    pa.field("op", pa.string(), nullable=False),  # I, U or D; a key change is a U with old_kind K
    pa.field("commit_lsn", pa.int64(), nullable=False),
    pa.field("tx_ordinal", pa.int64(), nullable=False),
    pa.field("xid", pa.int64(), nullable=False),
    pa.field("commit_time", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("start_lsn", pa.int64(), nullable=False),
    # 0-based positions, in the relation, of TOASTed columns that the update did not touch; NULL where there are none.
    pa.field("unchanged", pa.list_(pa.int32())),
    pa.field("old_kind", pa.string()),  # K, O or NULL
)

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("column", pa.string(), nullable=False),
        pa.field("commit_lsn", pa.int64(), nullable=False),
        pa.field("tx_ordinal", pa.int64(), nullable=False),
        pa.field("old", pa.bool_(), nullable=False),  # whether it stood in the old row
        pa.field("text", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class ChangeBatch:
    """Changes in commit order, and the values among them that their Arrow types cannot hold (NULL in `changes`)."""

    relation: Relation
    changes: pa.RecordBatch
    rejected: pa.RecordBatch


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The tuples of one side: `rows` are their positions among the changes, ascending."""

    rows: npt.NDArray[np.int64]
    columns: list[Cells]


def change_batch(
    batch: MessageBatch,
    envelope: Envelope,
    messages: npt.NDArray[np.int64],
    relation: Relation,
    conversions: Sequence[Conversion],
) -> ChangeBatch:
    """Decode the changes that stand at these indexes of the batch, all of this relation."""
    kind = envelope.kind[messages]
    marker = batch.data[batch.offsets[messages] + 5]
    old, new = _walk(batch, messages, kind, marker, len(relation.columns))
    new = _resolve_unchanged(new, old, marker)
    row, rejected_new = _struct(new, batch.data, len(messages), relation, conversions)
    old_row, rejected_old = _struct(old, batch.data, len(messages), relation, conversions)
    fields = [*CHANGE_FIELDS, pa.field("row", row.type), pa.field("old", old_row.type)]
    place = _place(batch, envelope, messages)
    changes = pa.RecordBatch.from_arrays(
        [_letters(kind), *place, _unchanged(new, len(messages)), _letters(marker, marker != NEW), row, old_row],
        schema=pa.schema(fields),
    )
    rejected = [*_rejections(rejected_new, place, old=False), *_rejections(rejected_old, place, old=True)]
    return ChangeBatch(relation, changes, _rejected_batch(rejected))


def _walk(
    batch: MessageBatch,
    messages: npt.NDArray[np.int64],
    kind: npt.NDArray[np.uint8],
    marker: npt.NDArray[np.uint8],
    column_count: int,
) -> tuple[_Rows, _Rows]:
    """Find the values of the old and of the new tuples. An update's new tuple stands behind its old one."""
    is_old = (marker == OLD_KEY) | (marker == OLD_ROW)
    if not np.where(is_old, kind != INSERT, (marker == NEW) & (kind != DELETE)).all():
        raise _malformed("its tuple is not of the kind its operation has")
    ends = batch.offsets[messages + 1]
    at = batch.offsets[messages] + 6
    old_rows, new_rows = np.flatnonzero(is_old), np.flatnonzero(kind != DELETE)
    old_columns: list[Cells] = []
    if len(old_rows):
        old_columns, at[old_rows] = walk_tuples(batch.data, at[old_rows], ends[old_rows], column_count)
        updates = old_rows[kind[old_rows] == UPDATE]
        if (batch.data[at[updates]] != NEW).any():
            raise _malformed("an update has no new row")
        at[updates] += 1
    new_columns, at[new_rows] = walk_tuples(batch.data, at[new_rows], ends[new_rows], column_count)
    if (at != ends).any():
        raise _malformed("bytes are left over")
    return _Rows(old_rows, old_columns), _Rows(new_rows, new_columns)


def _resolve_unchanged(new: _Rows, old: _Rows, marker: npt.NDArray[np.uint8]) -> _Rows:
    """Take unchanged TOAST values from the full old row where it was sent."""
    if any(cells.where(UNCHANGED_TOAST).any() for cells in old.columns):
        raise _malformed("an old row lacks a TOASTed value")
    if not (marker == OLD_ROW).any():
        return new
    place = np.full(len(marker), -1, dtype=np.int64)
    place[old.rows] = np.where(marker[old.rows] == OLD_ROW, np.arange(len(old.rows)), -1)
    source = place[new.rows]
    return _Rows(new.rows, [_filled(n, o, source) for n, o in zip(new.columns, old.columns, strict=True)])


def _filled(new: Cells, old: Cells, source: Positions) -> Cells:
    missing = np.flatnonzero(new.where(UNCHANGED_TOAST) & (source >= 0))
    if not len(missing):
        return new
    formats, starts, sizes = new.formats.copy(), new.starts.copy(), new.sizes.copy()
    for target, values in ((formats, old.formats), (starts, old.starts), (sizes, old.sizes)):
        target[missing] = values[source[missing]]
    # An old tuple stands before the new one in the same message: the rows stay in the order of their bytes.
    return Cells(formats, starts, sizes)


def _struct(
    side: _Rows, data: npt.NDArray[np.uint8], count: int, relation: Relation, conversions: Sequence[Conversion]
) -> tuple[pa.StructArray, list[tuple[str, Rejected]]]:
    names = [column.name for column in relation.columns]
    struct_type = pa.struct([pa.field(n, c.arrow_type) for n, c in zip(names, conversions, strict=True)])
    if not len(side.rows):
        return pa.nulls(count, struct_type), []
    converted = [convert(cells, data, c) for cells, c in zip(side.columns, conversions, strict=True)]
    children = [column.values for column in converted]
    struct = pa.Array.from_buffers(struct_type, len(side.rows), [None], children=children)
    rejected = [
        (name, Rejected(side.rows[column.rejected.positions.to_numpy()], column.rejected.texts))
        for name, column in zip(names, converted, strict=True)
        if column.rejected is not None
    ]
    return struct if len(side.rows) == count else struct.take(_spread(side.rows, count)), rejected


def _spread(rows: npt.NDArray[np.int64], count: int) -> pa.Int64Array:
    """For each change the index of its tuple, NULL where it has none."""
    indexes = np.zeros(count, dtype=np.int64)
    indexes[rows] = np.arange(len(rows))
    present = np.zeros(count, dtype=bool)
    present[rows] = True
    return pa.Array.from_buffers(pa.int64(), count, [bitmap(present), pa.py_buffer(indexes)])


def _place(batch: MessageBatch, envelope: Envelope, messages: npt.NDArray[np.int64]) -> list[pa.Array]:
    """commit_lsn, tx_ordinal, xid, commit_time and start_lsn."""
    transaction = envelope.transaction[messages]
    return [
        pa.array(envelope.commit_lsns[transaction]),
        pa.array(envelope.ordinal[messages]),
        pa.array(envelope.xids[transaction]),
        pa.array(envelope.commit_times[transaction]).cast(pa.timestamp("us", "UTC")),
        pa.array(batch.lsns[messages].view(np.int64)),
    ]


def _letters(letters: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_] | None = None) -> pa.StringArray:
    """Strings of one letter each: the bytes are already what Arrow wants."""
    offsets = np.arange(len(letters) + 1, dtype=np.int32)
    validity = None if valid is None else bitmap(valid)
    return pa.Array.from_buffers(
        pa.string(), len(letters), [validity, pa.py_buffer(offsets), pa.py_buffer(letters.copy())]
    )


def _unchanged(new: _Rows, count: int) -> pa.ListArray:
    found = [new.rows[cells.where(UNCHANGED_TOAST)] for cells in new.columns]
    rows = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    if not len(rows):
        return pa.nulls(count, pa.list_(pa.int32()))
    positions = np.repeat(np.arange(len(found), dtype=np.int32), [len(part) for part in found])
    per_row = np.bincount(rows, minlength=count)
    offsets = np.concatenate(([0], np.cumsum(per_row))).astype(np.int32)
    values = pa.array(positions[np.argsort(rows, kind="stable")])
    return pa.Array.from_buffers(
        pa.list_(pa.int32()), count, [bitmap(per_row > 0), pa.py_buffer(offsets)], children=[values]
    )


def _rejections(rejected: list[tuple[str, Rejected]], place: list[pa.Array], *, old: bool) -> list[pa.RecordBatch]:
    commit_lsn, ordinal = place[:2]
    return [
        pa.RecordBatch.from_arrays(
            [
                pa.repeat(name, len(values.texts)),
                commit_lsn.take(pa.array(values.positions)),
                ordinal.take(pa.array(values.positions)),
                pa.repeat(old, len(values.texts)),
                values.texts,
            ],
            schema=REJECTED_SCHEMA,
        )
        for name, values in rejected
    ]


def _rejected_batch(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=REJECTED_SCHEMA)


def _malformed(why: str) -> ProtocolError:
    return ProtocolError("malformed pgoutput change", detail=why)
