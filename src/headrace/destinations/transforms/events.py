"""Transforms of single events, for destinations that take those: the same as of batches, a row at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...config.transforms import MaskKind
from ...errors import DestinationRejected
from ...events import UNCHANGED, Delete, Event, Insert, OldRowKind, Relation, Row, Truncate, Update
from ...schema import ReplicatedTableSchema
from ..fold import fold_key
from .sql import evaluate, hash_of, matches_of
from .table_transform import TableTransform, row_schema

__all__ = ["transform_events"]

Find = Callable[[ReplicatedTableSchema], "TableTransform | None"]


def transform_events(find: Find, events: Iterable[Event]) -> Iterator[Event]:
    """Begin and Commit stay, also around nothing."""
    for event in events:
        if isinstance(event, Insert | Update | Delete):
            transform = find(event.schema)
            changed = event if transform is None else _change(transform, event)
            if changed is not None:
                yield changed
        elif isinstance(event, Relation):
            yield replace(event, old=event.old and _target(find, event.old), new=_target(find, event.new))
        elif isinstance(event, Truncate):
            yield replace(event, schemas=tuple(_target(find, schema) for schema in event.schemas))
        else:
            yield event


def _target(find: Find, schema: ReplicatedTableSchema) -> ReplicatedTableSchema:
    transform = find(schema)
    return schema if transform is None else transform.target


def _change(transform: TableTransform, event: Insert | Update | Delete) -> Insert | Update | Delete | None:
    found = event if transform.condition is None else _filtered(transform, event)
    if found is None:
        return None
    found = replace(found, schema=transform.target)
    if isinstance(found, Insert):
        return replace(found, row=_row(transform, found.row))
    if isinstance(found, Delete):
        return replace(found, old=_row(transform, found.old))
    return replace(found, row=_row(transform, found.row), old=found.old and _row(transform, found.old))


def _filtered(transform: TableTransform, event: Insert | Update | Delete) -> Insert | Update | Delete | None:
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


def _batch(transform: TableTransform, row: Row, names: frozenset[str]) -> pa.RecordBatch:
    """One row of these columns; the others are NULL."""
    schema = row_schema(transform.source)
    values = [[_plain(row.get(field.name)) if field.name in names else None] for field in schema]
    return pa.RecordBatch.from_arrays(
        [pa.array(value, field.type) for value, field in zip(values, schema, strict=True)], schema=schema
    )


def _plain(value: object) -> object:
    return list(value.items()) if isinstance(value, dict) else value
