"""Decoded steps as plain events, one object per row: for whoever wants rows, and pays for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ..events import UNCHANGED, Delete, Insert, OldRowKind, Relation, Row, Truncate, TruncateOptions, Update
from ..lsn import Lsn
from ..pgtypes.python_values import python_rows
from ..schema import ReplicatedTableSchema
from .columnar import TruncateStep
from .timestamps import datetime_from_unix

__all__ = ["PlacedEvent", "RowEvent", "merged_truncates", "row_events", "truncate_event"]

RowEvent = Insert | Update | Delete
PlacedEvent = RowEvent | Truncate | Relation
"""What stands between Begin and Commit."""


def row_events(
    schema: ReplicatedTableSchema, changes: pa.RecordBatch, rejected: pa.RecordBatch | None = None
) -> list[RowEvent]:
    """The changes (columns as in `changes`) of one schema version, in their order.

    Given `rejected`, a value that its Arrow type cannot hold is the text that Postgres sent, else it is NULL.
    """
    names = [column.name for column in schema.columns]
    identity = {column.name for column in schema.identity}
    found = python_rows(changes)
    if rejected is not None and rejected.num_rows:
        _restore(found, rejected)
    return [_event(schema, change, names, identity) for change in found]


def truncate_event(schemas: tuple[ReplicatedTableSchema, ...], step: TruncateStep) -> Truncate:
    """One TRUNCATE that emptied these tables."""
    options = TruncateOptions(0)
    if step.truncate.cascade:
        options |= TruncateOptions.CASCADE
    if step.truncate.restart_identity:
        options |= TruncateOptions.RESTART_IDENTITY
    moment = datetime_from_unix(step.commit_time)
    return Truncate(step.start_lsn, step.commit_lsn, step.tx_ordinal, step.xid, moment, schemas, options)


def merged_truncates(events: Iterable[PlacedEvent]) -> Iterator[PlacedEvent]:
    """One Truncate per statement, where each table has brought its own; the events are in commit order."""
    held: PlacedEvent | None = None
    for event in events:
        if (
            isinstance(held, Truncate)
            and isinstance(event, Truncate)
            and (held.commit_lsn, held.tx_ordinal) == (event.commit_lsn, event.tx_ordinal)
        ):
            held = replace(held, schemas=held.schemas + event.schemas)
            continue
        if held is not None:
            yield held
        held = event
    if held is not None:
        yield held


def _restore(changes: Sequence[dict[str, Any]], rejected: pa.RecordBatch) -> None:
    at: Mapping[tuple[int, int], dict[str, Any]] = {
        (change["commit_lsn"], change["tx_ordinal"]): change for change in changes
    }
    for value in rejected.to_pylist():
        change = at.get((value["commit_lsn"], value["tx_ordinal"]))
        if change is not None:
            change["old" if value["old"] else "row"][value["column"]] = value["text"]


def _event(schema: ReplicatedTableSchema, change: dict[str, Any], names: Sequence[str], identity: set[str]) -> RowEvent:
    place = (
        Lsn(change["start_lsn"]), Lsn(change["commit_lsn"]), change["tx_ordinal"], change["xid"],
        change["commit_time"], schema,
    )  # fmt: skip
    if change["op"] == "I":
        return Insert(*place, change["row"])
    kind = None if change["old_kind"] is None else OldRowKind(change["old_kind"])
    old: Row | None = change["old"]
    if kind is OldRowKind.KEY and old is not None:
        old = {column: value for column, value in old.items() if column in identity}
    if change["op"] == "D":
        assert old is not None
        assert kind is not None
        return Delete(*place, old, kind)
    row = change["row"]
    for position in change["unchanged"] or ():
        row[names[position]] = UNCHANGED
    return Update(*place, row, old, kind)
