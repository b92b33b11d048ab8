"""A change log: every change as a row of its own, with the rows of the initial copy before them.

The source's columns hold the row after the change, or, of a deleted row, what Postgres sent of it. `_headrace_before`
holds what Postgres sent of the row before the change: the key if it changed, all with REPLICA IDENTITY FULL.

A table that is copied again goes on in its log: a row like that of a truncate, then the rows of the copy. These have a
position too, that of `position_of_copy`, so that who reads by `(commit_lsn, tx_ordinal)` has the source's rows at last.
"""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from ..events import Truncate
from ..lsn import Lsn

__all__ = [
    "BEFORE",
    "COPIED",
    "OP",
    "SCHEMA_VERSION",
    "UNCHANGED",
    "change_log_schema",
    "logged_changes",
    "logged_copy",
    "logged_copy_again",
    "logged_truncate",
    "position_of_copy",
]

OP = "_headrace_op"
BEFORE = "_headrace_before"
UNCHANGED = "_headrace_unchanged"
SCHEMA_VERSION = "_headrace_schema_version"
COPIED = "R"
"""The operation of a row that was there when the table was copied; the others are I, U, D, and T for a truncate."""

_PLACE = (
    pa.field("_headrace_commit_lsn", pa.int64()),
    pa.field("_headrace_tx_ordinal", pa.int64()),
    pa.field("_headrace_xid", pa.int64()),
    pa.field("_headrace_commit_time", pa.timestamp("us", "UTC")),
)


def change_log_schema(rows: pa.Schema) -> pa.Schema:
    """The log's columns for source rows of this schema."""
    plain = [field.with_nullable(True) for field in rows]
    return pa.schema(
        [
            pa.field(OP, pa.string()),
            *_PLACE,
            *plain,
            # Names of columns whose value the update left as it was and Postgres did not send: NULL here.
            pa.field(UNCHANGED, pa.list_(pa.string())),
            pa.field(BEFORE, pa.struct(plain)),
            # The commit since which the source's table looked as it did for this change; 0: since it was copied. Of a
            # table that was copied again, the copy's position.
            pa.field(SCHEMA_VERSION, pa.int64()),
        ]
    )


def position_of_copy(applied: Lsn | None, version: Lsn) -> Lsn:
    """Where a new copy stands in a log that has all changes before `applied`, the last ones of `version`.

    After everything that is there, also a copy that no change followed, and before everything that comes.
    """
    return Lsn(max((applied or 0) - 1, version + 1))


def logged_copy(batch: pa.RecordBatch, schema: pa.Schema, position: Lsn) -> pa.RecordBatch:
    """Rows of a copy; `schema` is the log's. `position` is 0/0 for a first copy: nothing is before it."""
    size = batch.num_rows
    given = {
        OP: pa.repeat(COPIED, size),
        SCHEMA_VERSION: pa.repeat(pa.scalar(int(position), pa.int64()), size),
        **dict(zip(batch.schema.names, batch.columns, strict=True)),
    }
    if position:
        for field, value in zip(_PLACE, (int(position), 1), strict=False):
            given[field.name] = pa.repeat(pa.scalar(value, field.type), size)
    columns = [given.get(field.name) for field in schema]
    filled = [pa.nulls(size, field.type) if c is None else c for c, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(filled, schema=schema)


def logged_changes(batch: pa.RecordBatch, schema: pa.Schema, version: int) -> pa.RecordBatch:
    """Changes as they came (`pgoutput.changes`); `version` is that of the source's schema."""
    row, old = batch["row"], batch["old"]
    deleted = pc.equal(batch["op"], "D")
    after = [pc.if_else(deleted, before, value) for value, before in zip(row.flatten(), old.flatten(), strict=True)]
    place = [batch[field.name.removeprefix("_headrace_")].cast(field.type) for field in _PLACE]
    names = pa.array([field.name for field in row.type], pa.string())
    absent = pc.is_null(batch["old_kind"])
    before = pa.StructArray.from_arrays(old.flatten(), fields=list(schema.field(BEFORE).type), mask=absent)
    versions = pa.repeat(pa.scalar(version, pa.int64()), batch.num_rows)
    columns = [batch["op"].cast(pa.string()), *place, *after, _named(batch["unchanged"], names), before, versions]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def logged_truncate(truncate: Truncate, schema: pa.Schema, version: int) -> pa.RecordBatch:
    """The one row of a truncate: no column of the source has a value."""
    place: tuple[int | datetime, ...] = (
        int(truncate.commit_lsn),
        truncate.tx_ordinal,
        truncate.xid,
        truncate.commit_time,
    )
    return _emptied(place, schema, version)


def logged_copy_again(schema: pa.Schema, position: Lsn) -> pa.RecordBatch:
    """The one row before those of a new copy. No transaction made it."""
    return _emptied((int(position), 0), schema, int(position))


def _emptied(place: tuple[int | datetime, ...], schema: pa.Schema, version: int) -> pa.RecordBatch:
    known = {OP: "T", SCHEMA_VERSION: version, **dict(zip((field.name for field in _PLACE), place, strict=False))}
    columns = [pa.array([known.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _named(positions: pa.ListArray, names: pa.StringArray) -> pa.ListArray:
    """Lists of column positions as lists of their names."""
    flat = names.take(positions.flatten())
    lengths = pc.fill_null(pc.list_value_length(positions), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    return pa.ListArray.from_arrays(offsets, flat, mask=pc.is_null(positions))
