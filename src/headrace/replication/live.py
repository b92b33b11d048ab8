"""What arrives on a replication connection, as events at once: no spool, no Spark, for whoever looks on.

The messages are those of protocol 1: the server sends a transaction when it has committed, and in order. So what one
read brought, with the Begin of a transaction it continues and the Relations in force in front, is a batch as a segment
holds it, and is decoded like one. Memory holds one read at a time, however large a transaction is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..events import Begin, Commit, Event, Relation, Truncate
from ..lsn import INVALID_LSN, Lsn
from ..pgoutput import messages as m
from ..pgoutput.batch import PADDING, MessageBatch
from ..pgoutput.changes import ChangeBatch
from ..pgoutput.columnar import RelationStep, decode_steps
from ..pgoutput.decoder import decode
from ..pgoutput.envelope import Envelope, envelope
from ..pgoutput.row_events import PlacedEvent, RowEvent, merged_truncates, row_events, truncate_event
from ..pgoutput.timestamps import datetime_from_unix
from ..postgres.relation_resolution import CatalogEvidence, describes, resolve_relation
from ..schema import OWN_SCHEMA, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema
from .chunk import Chunk, Contents, Kind, Piece

__all__ = ["LiveEvents"]

_WAL_DATA = ord("w")

_Place = tuple[int, int, int]
"""Commit LSN, ordinal, and a rank among what has the same: a Relation stands before the change under it."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A transaction whose Commit has not come yet."""

    begin: bytes
    start_lsn: Lsn
    ordinal: int
    """That of its next change."""
    told: bool
    """Whether its Begin was among the events already."""


class LiveEvents:
    """Feed it what was read, in order, from the start of a connection on."""

    def __init__(
        self,
        tables: Iterable[ReplicatedTableSchema],
        look_up: Callable[[int], TableSchema | None],
        only: frozenset[int] | None = None,
    ) -> None:
        """`tables` are the published ones, `look_up` tells what the catalog has now; `only` these tables are shown."""
        self._schemas: dict[int, ReplicatedTableSchema] = {schema.table.id: schema for schema in tables}
        self._look_up = look_up
        self._only = only
        self._relations: dict[int, bytes] = {}
        self._altered: dict[int, tuple[Lsn, ReplicatedTableSchema | None]] = {}
        """Tables that look different now, and no change has come yet under which that could be told."""
        self._open: _Open | None = None

    def feed(self, contents: Contents) -> list[Event]:
        """The events in commit order. A Begin comes with the first event under it; empty transactions are left out."""
        chunk = Chunk([content for content in contents if content[0] == _WAL_DATA])
        if not len(chunk):
            return []
        piece = chunk.piece(0, len(chunk))
        if not len(piece.lengths):
            return []
        batch = self._batch(piece)
        place = envelope(batch)
        placed = [
            (where, event) for table in _tables(batch, place) for where, event in self._steps(table, batch, place)
        ]
        placed.sort(key=lambda item: item[0])
        events = list(self._bracketed(list(merged_truncates(event for _, event in placed)), batch, place))
        for message in piece.messages(Kind.RELATION):
            self._relations[int.from_bytes(message[1:5], "big")] = message
        return events

    def _batch(self, piece: Piece) -> MessageBatch:
        wanted = np.unique(piece.relations).tolist()
        pieces = [Piece.of_messages([self._relations[oid] for oid in wanted if oid in self._relations], INVALID_LSN)]
        if self._open is not None:
            pieces.append(Piece.of_messages([self._open.begin], self._open.start_lsn))
        pieces = [part for part in (*pieces, piece) if len(part.lengths)]
        lengths = np.concatenate([part.lengths for part in pieces])
        data = np.frombuffer(b"".join([*(part.data for part in pieces), bytes(PADDING)]), dtype=np.uint8)
        ordinal = self._open.ordinal if self._open is not None else 0
        lsns = np.concatenate([part.lsns for part in pieces])
        return MessageBatch(lsns, np.concatenate(([0], np.cumsum(lengths))), data, ordinal)

    def _steps(self, table: int, batch: MessageBatch, place: Envelope) -> Iterator[tuple[_Place, PlacedEvent]]:
        known = self._schemas.get(table)
        types = {} if known is None else {column.type.oid: column.type for column in known.columns}
        for step in decode_steps(batch, place, table, types):
            if isinstance(step, RelationStep):
                schema = self._settle(step)
                # The decoder looks the types up when it goes on.
                types.update({column.type.oid: column.type for column in schema.columns})
                continue
            schema = self._schemas[table]
            if not self._is_shown(schema):
                continue
            changes: Sequence[RowEvent | Truncate]
            if isinstance(step, ChangeBatch):
                changes = row_events(schema, step.changes, step.rejected)
            else:
                changes = [truncate_event((schema,), step)]
            yield from self._told(table, changes[0])
            for change in changes:
                yield (change.commit_lsn, change.tx_ordinal, 1), change

    def _told(self, table: int, first: RowEvent | Truncate) -> Iterator[tuple[_Place, Relation]]:
        if table in self._altered:
            start, old = self._altered.pop(table)
            relation = Relation(start, first.commit_lsn, old, self._schemas[table])
            yield (first.commit_lsn, first.tx_ordinal, 0), relation

    def _settle(self, step: RelationStep) -> ReplicatedTableSchema:
        """The version that a Relation message begins. The one before is told of with the next change."""
        relation, known = step.relation, self._schemas.get(step.relation.relation_id)
        if known is not None and describes(relation, known):
            return known
        now = self._look_up(relation.relation_id)
        name = TableName(relation.namespace or "pg_catalog", relation.name)
        nothing = ReplicatedTableSchema(TableSchema(relation.relation_id, name, ()), ReplicationMask(frozenset()))
        evidence = CatalogEvidence(0 if known is None else known.table.natts, now.natts or None if now else None)
        resolved = resolve_relation(known or nothing, relation, now, evidence)
        schema = replace(resolved.schema, table=replace(resolved.schema.table, natts=resolved.natts))
        self._altered.setdefault(relation.relation_id, (step.start_lsn, known))
        self._schemas[relation.relation_id] = schema
        return schema

    def _is_shown(self, schema: ReplicatedTableSchema) -> bool:
        if schema.table.name.schema == OWN_SCHEMA:
            return False
        return self._only is None or schema.table.id in self._only

    def _bracketed(self, changes: Sequence[PlacedEvent], batch: MessageBatch, place: Envelope) -> Iterator[Event]:
        """The changes between Begin and Commit, and what is known of the transaction that stays open."""
        waiting = list(reversed(changes))
        begins = np.flatnonzero(place.kind == Kind.BEGIN).tolist()
        ends = {int(place.transaction[i]): i for i in np.flatnonzero(place.kind == Kind.COMMIT).tolist()}
        for number, index in enumerate(begins):
            told = number == 0 and self._open is not None and self._open.told
            begin = _begin(batch, place, number, index)
            while waiting and waiting[-1].commit_lsn == begin.commit_lsn:
                if not told:
                    yield begin
                told = True
                yield waiting.pop()
            if number in ends:
                self._open = None
                commit = decode(batch.message(ends[number]))
                if told and isinstance(commit, m.Commit):
                    yield Commit(begin.commit_lsn, commit.end_lsn, begin.xid, begin.commit_time)
            else:
                ordinals = place.ordinal[place.transaction == number]
                following = max(batch.first_ordinal if number == 0 else 0, int(ordinals.max()) + 1)
                self._open = _Open(batch.message(index), begin.start_lsn, following, told)


def _tables(batch: MessageBatch, place: Envelope) -> list[int]:
    """The tables that anything is said of."""
    found = set(np.unique(place.relation_id[place.relation_id != 0]).tolist())
    for index in np.flatnonzero(place.kind == Kind.TRUNCATE).tolist():
        truncate = decode(batch.message(index))
        assert isinstance(truncate, m.Truncate)
        found.update(truncate.relation_ids)
    return sorted(found)


def _begin(batch: MessageBatch, place: Envelope, number: int, index: int) -> Begin:
    moment = datetime_from_unix(int(place.commit_times[number]))
    lsn = Lsn(int(place.commit_lsns[number]))
    return Begin(Lsn(int(batch.lsns[index])), lsn, int(place.xids[number]), moment)
