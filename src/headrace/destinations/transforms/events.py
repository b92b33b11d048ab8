"""Transforms of single events, for destinations that take those: the same as of batches, a row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...config.transforms import MaskKind
from ...errors import DestinationRejected
from ...events import UNCHANGED, Delete, Insert, OldRowKind, Row, Update
from ..fold import fold_key
from .contract import RowEvent
from .sql import evaluate, hash_of, matches_of
from .table_transform import TableTransform, row_schema

__all__ = ["arrow_rows", "transform_event"]


def transform_event(transform: TableTransform, event: RowEvent) -> RowEvent | None:
    """What a destination gets instead; None: nothing."""
    found = event if transform.condition is None else _filtered(transform, event)
    if found is None:
        return None
    found = replace(found, schema=transform.target)
    if isinstance(found, Insert):
        return replace(found, row=_row(transform, found.row))
    if isinstance(found, Delete):
        return replace(found, old=_row(transform, found.old))
    return replace(found, row=_row(transform, found.row), old=found.old and _row(transform, found.old))


def _filtered(transform: TableTransform, event: RowEvent) -> RowEvent | None:
    if isinstance(event, Insert):
        return event if _matches(transform, event.row) else None
    if isinstance(event, Delete):
        full = event.old_kind is OldRowKind.FULL
        return event if not full or _matches(transform, event.old) else None
    matches = _matches(transform, event.row)
    full = event.old is not None and event.old_kind is OldRowKind.FULL
    matched = _matches(transform, event.old) if full and event.old is not None else True
    if matches:
        return event if matched else Insert(**_place(event), row=event.row)
    if not matched:
        return None
    key = fold_key(transform.source) or ()
    old = event.old if event.old is not None else {name: event.row[name] for name in key}
    return Delete(**_place(event), old=old, old_kind=event.old_kind or OldRowKind.KEY)


def _place(event: Update) -> dict[str, Any]:
    names = ("start_lsn", "commit_lsn", "tx_ordinal", "xid", "commit_time", "schema")
    return {name: getattr(event, name) for name in names}


def _matches(transform: TableTransform, row: Row) -> bool:
    assert transform.condition is not None
    if any(row.get(name) is UNCHANGED for name in transform.decided_by):
        name = transform.source.table.name
        msg = f"the filter of table {name} names a column whose TOASTed value an update did not send"
        raise DestinationRejected(msg, hint="ALTER TABLE … REPLICA IDENTITY FULL, and resync it")
    (matches,) = evaluate(_batch(transform, row, transform.decided_by), [matches_of(transform.condition)])
    return bool(matches[0].as_py())


def _row(transform: TableTransform, row: Row) -> dict[str, object]:
    columns = transform.source.columns
    kept = {columns[i].name: transform.masks.get(i) for i in transform.kept if columns[i].name in row}
    result: dict[str, object] = {}
    for name, mask in kept.items():
        value = row[name]
        if mask is None or value is UNCHANGED:
            result[name] = value
        elif mask.kind is MaskKind.NULL:
            result[name] = None
        elif mask.kind is MaskKind.HASH:
            (hashed,) = evaluate(_batch(transform, row, frozenset({name})), [hash_of(name)], [transform.salt])
            result[name] = hashed[0].as_py()
        else:
            result[name] = transform.fixed[_position(transform, name)].as_py()
    return result


def _position(transform: TableTransform, name: str) -> int:
    return next(i for i, column in enumerate(transform.source.columns) if column.name == name)


def arrow_rows(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    """Rows of events as a table; what was not sent is NULL."""
    columns = [pa.array([_plain(row.get(field.name)) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _batch(transform: TableTransform, row: Row, names: frozenset[str]) -> pa.RecordBatch:
    """One row of these columns; the others are NULL."""
    known = {name: value for name, value in row.items() if name in names}
    return arrow_rows(row_schema(transform.source), [known]).to_batches()[0]


def _plain(value: object) -> object:
    if value is UNCHANGED:
        return None
    return list(value.items()) if isinstance(value, dict) else value
