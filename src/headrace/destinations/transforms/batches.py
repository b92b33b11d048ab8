"""Transforms of Arrow batches: copied rows and changes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...config.transforms import MaskKind
from ...errors import DestinationRejected
from ...remedies import RESYNC
from ...schema import ReplicaIdentity
from ..fold import fold_key
from ..unchanged import renumbered
from .sql import evaluate, hash_of, matches_of
from .table_transform import TableTransform

__all__ = ["changes_schema", "filtered", "masked", "matches", "transform_changes", "transform_rows"]


def transform_rows(transform: TableTransform, after: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the initial copy."""
    if transform.condition is not None:
        batch = batch.filter(matches(transform, batch))
    return pa.RecordBatch.from_arrays(masked(transform, batch), schema=after)


def changes_schema(transform: TableTransform, schema: pa.Schema) -> pa.Schema:
    """The schema of changes, by that of the source's."""
    row = pa.struct(transform.fields(list(schema.field("row").type)))
    return pa.schema([pa.field(f.name, row, f.nullable) if f.name in ("row", "old") else f for f in schema])


def transform_changes(transform: TableTransform, after: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Changes (`pgoutput.changes`): filtered, then masked, with positions that count in what is left."""
    if transform.condition is not None:
        batch = filtered(transform, batch)
    columns = {name: batch.column(name) for name in batch.schema.names}
    fields = list(after.field("row").type)
    for name in ("row", "old"):
        rows = columns[name]
        flat = pa.RecordBatch.from_arrays(rows.flatten(), names=[f.name for f in rows.type])
        # Of an old key only the key's columns were sent: the others stay NULL. A whole old row is found by its value.
        key_only = name == "old" and transform.source.table.replica_identity is not ReplicaIdentity.FULL
        taken = masked(transform, flat, where_valid=key_only)
        columns[name] = pa.StructArray.from_arrays(taken, fields=fields, mask=rows.is_null())
    columns["unchanged"] = renumbered(columns["unchanged"], transform.kept, len(transform.source.columns))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=after)


def masked(transform: TableTransform, batch: pa.RecordBatch, *, where_valid: bool = False) -> list[pa.Array]:
    """The target's columns. `where_valid`: a fixed value only where there was one."""
    hashed = [i for i in transform.kept if i in transform.masks and transform.masks[i].kind is MaskKind.HASH]
    hashes = {}
    if hashed:
        expressions = [hash_of(batch.schema.names[i]) for i in hashed]
        hashes = dict(zip(hashed, evaluate(batch, expressions, transform.hash_parameters(hashed)), strict=True))
    columns = []
    for i in transform.kept:
        column, mask = batch.column(i), transform.masks.get(i)
        if mask is None:
            columns.append(column)
        elif mask.kind is MaskKind.HASH:
            columns.append(hashes[i].cast(pa.string()))
        elif mask.kind is MaskKind.NULL:
            columns.append(pa.nulls(len(column), column.type))
        else:
            value = transform.fixed[i].cast(column.type)
            columns.append(pc.if_else(column.is_valid(), value, None) if where_valid else pa.repeat(value, len(column)))
    return columns


def matches(transform: TableTransform, rows: pa.RecordBatch) -> pa.BooleanArray:
    """Which rows the condition is true for."""
    assert transform.condition is not None
    (found,) = evaluate(rows, [matches_of(transform.condition)])
    return found


def filtered(transform: TableTransform, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Changes as they are for a table that only ever had the rows that match.

    An update of a row that does not match any more is a delete. One of a row that did not match before is an insert,
    where the old row was sent; where not, it stays an update, which adds a row that is not there.
    """
    _require_decided(transform, batch)
    op, new, old = batch["op"], _flat(batch["row"]), _flat(batch["old"])
    insert, update, delete = (pc.equal(op, kind) for kind in "IUD")
    fits = matches(transform, new)
    if transform.source.table.replica_identity is ReplicaIdentity.FULL:
        fitted = matches(transform, old)
        leaves = pc.and_(pc.and_(update, fitted), pc.invert(fits))
        comes = pc.and_(pc.and_(update, fits), pc.invert(fitted))
        stays = pc.and_(pc.and_(update, fits), fitted)
        gone = pc.and_(delete, fitted)
    else:
        leaves, stays, gone = pc.and_(update, pc.invert(fits)), pc.and_(update, fits), delete
        comes = pa.repeat(pa.scalar(False), len(op))
    batch = _as_deletes(transform, batch, leaves)
    batch = _as_inserts(batch, comes)
    kept = pc.or_(pc.or_(pc.and_(insert, fits), pc.or_(leaves, comes)), pc.or_(stays, gone))
    return batch.filter(kept)


def _require_decided(transform: TableTransform, batch: pa.RecordBatch) -> None:
    positions = [i for i, column in enumerate(transform.source.columns) if column.name in transform.decided_by]
    unknown = pc.is_in(batch["unchanged"].flatten(), pa.array(positions, pa.int32()))
    if pc.any(unknown).as_py():
        name = transform.source.table.name
        raise DestinationRejected(
            f"the filter of table {name} names a column whose TOASTed value an update did not send",
            hint=f"ALTER TABLE {name.quoted} REPLICA IDENTITY FULL, then run: {RESYNC}; or filter by another column",
        )


def _as_deletes(transform: TableTransform, batch: pa.RecordBatch, which: pa.BooleanArray) -> pa.RecordBatch:
    """The old row, or else its key, which did not change, is what goes."""
    key = set(fold_key(transform.source) or ())
    row, old = batch["row"], batch["old"]
    fields = list(row.type)
    sent = old.is_valid()
    children = [
        pc.if_else(sent, before, after if field.name in key else pa.nulls(len(row), field.type))
        for field, before, after in zip(fields, old.flatten(), row.flatten(), strict=True)
    ]
    olds = pa.StructArray.from_arrays(children, fields=fields, mask=pc.invert(pc.or_(sent, which)))
    rows = pa.StructArray.from_arrays(row.flatten(), fields=fields, mask=pc.or_(row.is_null(), which))
    kinds = pc.if_else(pc.and_(which, batch["old_kind"].is_null()), "K", batch["old_kind"])
    unchanged = _emptied(batch["unchanged"], which)
    return _with(batch, op=pc.if_else(which, "D", batch["op"]), row=rows, old=olds, old_kind=kinds, unchanged=unchanged)


def _as_inserts(batch: pa.RecordBatch, which: pa.BooleanArray) -> pa.RecordBatch:
    old = batch["old"]
    olds = pa.StructArray.from_arrays(old.flatten(), fields=list(old.type), mask=pc.or_(old.is_null(), which))
    kinds = pc.if_else(which, pa.scalar(None, pa.string()), batch["old_kind"])
    return _with(batch, op=pc.if_else(which, "I", batch["op"]), old=olds, old_kind=kinds)


def _emptied(lists: pa.ListArray, which: pa.BooleanArray) -> pa.ListArray:
    return pc.if_else(which, pa.scalar(None, lists.type), lists)


def _with(batch: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    given = [columns.get(field.name, batch[field.name]) for field in batch.schema]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(given, batch.schema, strict=True)], schema=batch.schema
    )


def _flat(rows: pa.StructArray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(rows.flatten(), names=[field.name for field in rows.type])
