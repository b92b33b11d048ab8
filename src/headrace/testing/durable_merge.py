"""Applies folded changes to the rows of a `DurableDestination`: what a MERGE does, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..destinations.fold import fold_key
from ..destinations.rows import Rows
from ..schema import ReplicatedTableSchema
from .canonical import canonical_text, canonical_texts, object_text

__all__ = ["insert_rows", "merge"]

_INSERT = "INSERT INTO state (table_id, key, row) VALUES (?, ?, ?)"
_DELETE_KEY = "DELETE FROM state WHERE table_id = ? AND key = ?"
_DELETE_SOME = "DELETE FROM state WHERE rowid IN (SELECT rowid FROM state WHERE table_id = ? AND key = ? LIMIT ?)"
_SELECT = "SELECT row FROM state WHERE table_id = ? AND key = ?"


@dataclass(slots=True)
class _Folded:
    op: str
    key: str
    row: list[str]
    """The JSON text of each value."""
    count: int
    unchanged: tuple[int, ...]
    origin: str | None
    """The key under which the unchanged values stand; None: the same key."""


def insert_rows(connection: sqlite3.Connection, schema: ReplicatedTableSchema, batch: pa.RecordBatch) -> list[str]:
    """Add copied rows; returns their texts."""
    names, table_id = batch.schema.names, schema.table.id
    positions = _positions(names, schema)
    rows = list(canonical_texts(batch.columns))
    texts = [object_text(names, row) for row in rows]
    keys = (_key_text(row, positions) for row in rows)
    connection.executemany(_INSERT, ((table_id, k, text) for k, text in zip(keys, texts, strict=True)))
    return texts


def merge(connection: sqlite3.Connection, schema: ReplicatedTableSchema, rows: Rows) -> None:
    """Apply the folded changes of one step."""
    table_id, key = schema.table.id, fold_key(schema)
    row_type = rows.arrow_schema.field("row").type
    names = [row_type.field(i).name for i in range(row_type.num_fields)]
    changes = [change for batch in rows.batches() for change in _read(batch, _positions(names, schema), key)]
    # All values that are kept are read before anything goes: a key may be given up by one row and taken by another.
    _keep_unchanged(connection, table_id, names, changes)
    if key is None:
        counts = ((table_id, c.key, c.count) for c in changes if c.op == "D")
        connection.executemany(_DELETE_SOME, counts)
    else:
        connection.executemany(_DELETE_KEY, ((table_id, c.key) for c in changes if c.op != "I"))
    added = ((table_id, c.key, object_text(names, c.row)) for c in changes if c.op != "D")
    connection.executemany(_INSERT, added)


def _read(batch: pa.RecordBatch, positions: Sequence[int], key: tuple[str, ...] | None) -> Iterator[_Folded]:
    origins: Iterable[Any] = [None] * batch.num_rows
    if key is not None:
        present = batch["origin"].is_valid().to_pylist()
        values = canonical_texts(batch["origin"].flatten())
        every = range(len(key))
        origins = [_key_text(v, every) if there else None for v, there in zip(values, present, strict=True)]
    fields = (batch[name].to_pylist() for name in ("op", "count", "unchanged"))
    rows = canonical_texts(batch["row"].flatten())
    for op, count, unchanged, origin, row in zip(*fields, origins, rows, strict=True):
        yield _Folded(op, _key_text(row, positions), list(row), count, tuple(unchanged or ()), origin)


def _keep_unchanged(
    connection: sqlite3.Connection, table_id: int, names: list[str], changes: Iterable[_Folded]
) -> None:
    for change in changes:
        if not change.unchanged:
            continue
        found = connection.execute(_SELECT, (table_id, change.origin or change.key)).fetchone()
        if found is None:
            continue
        kept = json.loads(found[0])
        for i in change.unchanged:
            change.row[i] = canonical_text(kept[names[i]])


def _key_text(row: Sequence[str], positions: Iterable[int]) -> str:
    return "[" + ",".join([row[i] for i in positions]) + "]"


def _positions(names: Sequence[str], schema: ReplicatedTableSchema) -> list[int]:
    return [names.index(column.name) for column in schema.found_by]
