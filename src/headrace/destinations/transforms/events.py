"""Transforms of single events, for destinations that take those: the same as of batches.

What SQL decides is asked for all rows of many events at once; the rest is put together event by event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ...config.transforms import MaskKind
from ...errors import DestinationRejected
from ...events import UNCHANGED, Delete, Insert, OldRowKind, Row, Update
from ...remedies import RESYNC
from ...schema import ReplicatedTableSchema
from ..fold import fold_key
from .contract import RowEvent
from .sql import evaluate, hash_of, matches_of
from .table_transform import TableTransform, row_schema

__all__ = ["arrow_rows", "transform_events"]


@dataclass(frozen=True, slots=True)
class _Image:
    """A row of an event, old or new, and what becomes of it."""

    given: Row
    made: Mapping[str, object]
    matches: bool


def transform_events(transform: TableTransform, events: Sequence[RowEvent]) -> list[RowEvent | None]:
    """What a destination gets instead of each; None: nothing."""
    new = [None if isinstance(event, Delete) else event.row for event in events]
    old = [None if isinstance(event, Insert) else event.old for event in events]
    images = iter(_images(transform, [row for row in (*new, *old) if row is not None]))
    news = [None if row is None else next(images) for row in new]
    olds = [None if row is None else next(images) for row in old]
    return [_transformed(transform, *sides) for sides in zip(events, news, olds, strict=True)]


def _images(transform: TableTransform, rows: Sequence[Row]) -> list[_Image]:
    columns = transform.source.columns
    positions = [i for i, mask in transform.masks.items() if mask.kind is MaskKind.HASH]
    wanted = [columns[i].name for i in positions]
    expressions = [hash_of(name) for name in wanted]
    if transform.condition is not None:
        expressions.append(matches_of(transform.condition))
    if not rows or not expressions:
        return [_Image(row, _made(transform, row, {}), matches=True) for row in rows]
    asked = transform.decided_by.union(wanted)
    known = [{name: value for name, value in row.items() if name in asked} for row in rows]
    (batch,) = arrow_rows(row_schema(transform.source), known).to_batches()
    found = [column.to_pylist() for column in evaluate(batch, expressions, transform.hash_parameters(positions))]
    matches = found.pop() if transform.condition is not None else [True] * len(rows)
    hashes = zip(*found, strict=True) if found else [()] * len(rows)
    return [
        _Image(row, _made(transform, row, dict(zip(wanted, values, strict=True))), matches=match)
        for row, values, match in zip(rows, hashes, matches, strict=True)
    ]


def _made(transform: TableTransform, row: Row, hashes: Mapping[str, object]) -> dict[str, object]:
    columns, result = transform.source.columns, dict[str, object]()
    for i in transform.kept:
        name, mask = columns[i].name, transform.masks.get(i)
        if name not in row:
            continue
        if mask is None or row[name] is UNCHANGED:
            result[name] = row[name]
        elif mask.kind is MaskKind.HASH:
            result[name] = hashes[name]
        else:
            result[name] = transform.fixed[i].as_py() if mask.kind is MaskKind.FIXED else None
    return result


def _transformed(transform: TableTransform, event: RowEvent, new: _Image | None, old: _Image | None) -> RowEvent | None:
    target = transform.target
    if isinstance(event, Insert):
        assert new is not None
        return replace(event, schema=target, row=new.made) if _matches(transform, new) else None
    # Of an old key nobody can tell whether its row matched.
    matched = event.old_kind is not OldRowKind.FULL or old is None or _matches(transform, old)
    if isinstance(event, Delete):
        assert old is not None
        return replace(event, schema=target, old=old.made) if matched else None
    assert new is not None
    if _matches(transform, new):
        if not matched:
            return Insert(**_place(event, target), row=new.made)
        return replace(event, schema=target, row=new.made, old=None if old is None else old.made)
    if not matched:
        return None
    gone = old.made if old is not None else {name: new.made[name] for name in fold_key(transform.source) or ()}
    return Delete(**_place(event, target), old=gone, old_kind=event.old_kind or OldRowKind.KEY)


def _place(event: Update, target: ReplicatedTableSchema) -> dict[str, Any]:
    names = ("start_lsn", "commit_lsn", "tx_ordinal", "xid", "commit_time")
    return {name: getattr(event, name) for name in names} | {"schema": target}


def _matches(transform: TableTransform, image: _Image) -> bool:
    if any(image.given.get(name) is UNCHANGED for name in transform.decided_by):
        name = transform.source.table.name
        msg = f"the filter of table {name} names a column whose TOASTed value an update did not send"
        raise DestinationRejected(msg, hint=f"ALTER TABLE {name.quoted} REPLICA IDENTITY FULL, then run: {RESYNC}")
    return image.matches


def arrow_rows(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    """Rows of events as a table; what was not sent is NULL."""
    columns = [pa.array([_plain(row.get(field.name)) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _plain(value: object) -> object:
    if value is UNCHANGED:
        return None
    return list(value.items()) if isinstance(value, dict) else value
