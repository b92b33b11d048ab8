"""What a real server sends: pgoutput messages of a publication, taken through the slot's SQL interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from headrace.lsn import Lsn
from headrace.pgoutput.batch import MessageBatch

Connection = psycopg.Connection[Any]

SERVER_PROTOCOL = {14: 2, 15: 3, 16: 4, 17: 4, 18: 4}


@dataclass(frozen=True)
class Captured:
    """One message; `streamed` tells that it stood inside a stream block."""

    lsn: int
    streamed: bool
    payload: bytes

    @property
    def kind(self) -> str:
        return chr(self.payload[0])


@dataclass(frozen=True)
class Slot:
    connection: Connection
    name: str
    publication: str

    def read(self, *, keep: bool = False, protocol: int = 1, **options: str) -> list[Captured]:
        """Everything committed since the last read; `keep` leaves it there for another read."""
        function = "pg_logical_slot_peek_binary_changes" if keep else "pg_logical_slot_get_binary_changes"
        given = {"proto_version": str(protocol), "publication_names": f'"{self.publication}"', **options}
        pairs = [text for pair in given.items() for text in pair]
        rows = self.connection.execute(
            f"SELECT lsn::text, data FROM {function}(%s, NULL, NULL, VARIADIC %s::text[])",
            (self.name, pairs),
        ).fetchall()
        return list(_marked([(Lsn.parse(lsn), bytes(data)) for lsn, data in rows]))

    def batch(self, *, keep: bool = False, **options: str) -> MessageBatch:
        return batch_of(self.read(keep=keep, **options))


def batch_of(captured: list[Captured], first_ordinal: int = 0) -> MessageBatch:
    return MessageBatch.of([one.payload for one in captured], [one.lsn for one in captured], first_ordinal)


def _marked(rows: list[tuple[Lsn, bytes]]) -> Iterator[Captured]:
    streamed = False
    for lsn, payload in rows:
        if payload[:1] in (b"S", b"E"):
            streamed = payload[:1] == b"S"
            yield Captured(lsn, False, payload)
        else:
            yield Captured(lsn, streamed, payload)


@contextmanager
def publish(
    connection: Connection, what: str = "FOR ALL TABLES", *, name: str = "p", two_phase: bool = False
) -> Iterator[Slot]:
    """A publication, and a slot whose stream starts now."""
    connection.execute(sql.SQL("CREATE PUBLICATION {} {}").format(sql.Identifier(name), sql.SQL(what)))
    slot = f"slot_{connection.info.dbname}_{name}"
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, %s)", (slot, two_phase))
    try:
        yield Slot(connection, slot, name)
    finally:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
