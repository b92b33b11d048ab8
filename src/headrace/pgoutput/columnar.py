"""The columnar decoder: a batch of messages and a table in, the table's steps out, in commit order.

A step is a batch of changes of one schema version, a relation that begins to hold, or a truncate. Reading is by
columns, never by rows; only the few relation, truncate and logical messages are decoded one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..errors import ProtocolError
from ..lsn import Lsn
from ..pgtypes.contract import Conversion
from ..pgtypes.registry import TypeOptions, builtin_type, conversion_for
from ..schema import PgType
from . import messages as m
from .batch import MessageBatch
from .changes import ChangeBatch, change_batch
from .decoder import decode
from .envelope import Envelope

__all__ = [
    "MAX_ROWS",
    "Emitted",
    "RelationStep",
    "Step",
    "TruncateStep",
    "decode_changes",
    "decode_steps",
    "logical_messages",
    "truncates",
]

MAX_ROWS = 65_536
"""Rows of one ChangeBatch at most: a size that Spark and the processor's caches both like."""

_MAX_SPAN = 1 << 30
"""Bytes of the batch that one ChangeBatch may stretch over: its 32-bit offsets hold that plus one more message."""

_IS_CHANGE = np.zeros(256, dtype=bool)
_IS_CHANGE[list(b"IUD")] = True


@dataclass(frozen=True, slots=True)
class RelationStep:
    """From here on the table looks like this; the batch's first change of a table has one before it."""

    start_lsn: Lsn
    relation: m.Relation


@dataclass(frozen=True, slots=True)
class TruncateStep:
    """The table was emptied here. `commit_time` is in microseconds since the Unix epoch."""

    start_lsn: Lsn
    commit_lsn: Lsn
    tx_ordinal: int
    xid: int
    commit_time: int
    truncate: m.Truncate


@dataclass(frozen=True, slots=True)
class Emitted:
    """A transactional logical message and its place; `commit_time` as above."""

    start_lsn: Lsn
    commit_lsn: Lsn
    tx_ordinal: int
    xid: int
    commit_time: int
    message: m.LogicalMessage


Step = ChangeBatch | RelationStep | TruncateStep


_DEFAULT_OPTIONS = TypeOptions()


def decode_changes(
    batch: MessageBatch,
    envelope: Envelope,
    table_id: int,
    types: Mapping[int, PgType],
    options: TypeOptions = _DEFAULT_OPTIONS,
) -> Iterator[ChangeBatch]:
    """The table's inserts, updates and deletes: a ChangeBatch never straddles a schema change or a truncate."""
    for step in decode_steps(batch, envelope, table_id, types, options):
        if isinstance(step, ChangeBatch):
            yield step


def decode_steps(
    batch: MessageBatch,
    envelope: Envelope,
    table_id: int,
    types: Mapping[int, PgType],
    options: TypeOptions = _DEFAULT_OPTIONS,
) -> Iterator[Step]:
    """All that happened to the table, in order. `types` has the types that are not built in, by OID.

    A type that is in neither keeps Postgres's text.
    """
    changes = np.flatnonzero((envelope.relation_id == table_id) & _IS_CHANGE[envelope.kind])
    relations = list(_relations(batch, envelope, table_id))
    if len(changes) and not (relations and relations[0][0] < changes[0]):
        msg = "a change stands before its relation"
        raise ProtocolError(msg, detail=f"table {table_id}")
    cuts: list[tuple[int, Step]] = [*relations, *truncates(batch, envelope, table_id)]
    cuts.sort(key=lambda cut: cut[0])
    borders = [*np.searchsorted(changes, [index for index, _ in cuts]).tolist(), len(changes)]
    for (_, step), (start, end) in zip(cuts, pairwise(borders), strict=True):
        yield step
        if isinstance(step, RelationStep):
            relation, conversions = step.relation, _conversions(step.relation, types, options)
        for rows in _chunks(changes[start:end], batch.offsets):
            yield change_batch(batch, envelope, rows, relation, conversions)


def logical_messages(
    batch: MessageBatch, envelope: Envelope, among: npt.NDArray[np.int64] | None = None
) -> Iterator[Emitted]:
    """The batch's transactional logical messages, in order; or those of them at the indexes in `among`."""
    messages = np.flatnonzero(envelope.kind == ord("M")) if among is None else among
    for index in messages[envelope.ordinal[messages] >= 0].tolist():
        message = decode(batch.message(index))
        assert isinstance(message, m.LogicalMessage)
        yield Emitted(*_place(batch, envelope, index), message)


def _relations(batch: MessageBatch, envelope: Envelope, table_id: int) -> Iterator[tuple[int, RelationStep]]:
    """The table's relations, without those that only repeat what already holds."""
    holding = b""
    for index in np.flatnonzero((envelope.relation_id == table_id) & (envelope.kind == ord("R"))).tolist():
        payload = batch.message(index)
        if payload != holding:
            holding, relation = payload, decode(payload)
            assert isinstance(relation, m.Relation)
            yield index, RelationStep(Lsn(int(batch.lsns[index])), relation)


def truncates(batch: MessageBatch, envelope: Envelope, table_id: int) -> Iterator[tuple[int, TruncateStep]]:
    """Where the table was emptied: the message's index in the batch, and the step."""
    for index in np.flatnonzero(envelope.kind == ord("T")).tolist():
        truncate = decode(batch.message(index))
        assert isinstance(truncate, m.Truncate)
        if table_id in truncate.relation_ids:
            yield index, TruncateStep(*_place(batch, envelope, index), truncate)


def _place(batch: MessageBatch, envelope: Envelope, index: int) -> tuple[Lsn, Lsn, int, int, int]:
    transaction = int(envelope.transaction[index])
    return (
        Lsn(int(batch.lsns[index])),
        Lsn(int(envelope.commit_lsns[transaction])),
        int(envelope.ordinal[index]),
        int(envelope.xids[transaction]),
        int(envelope.commit_times[transaction]),
    )


def _conversions(relation: m.Relation, types: Mapping[int, PgType], options: TypeOptions) -> list[Conversion]:
    found = []
    for column in relation.columns:
        kept = replace(_type(column.type_oid, types), as_text=column.name in options.text_columns)
        found.append(conversion_for(kept, column.typmod, options))
    return found


def _type(oid: int, types: Mapping[int, PgType]) -> PgType:
    return types.get(oid) or builtin_type(oid) or PgType(oid, f"type {oid}", schema="")


def _chunks(rows: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    while len(rows):
        reach = np.searchsorted(rows, np.searchsorted(offsets, offsets[rows[0]] + _MAX_SPAN))
        size = max(1, min(MAX_ROWS, int(reach)))
        yield rows[:size]
        rows = rows[size:]
