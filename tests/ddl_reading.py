"""What a source's event triggers told, read from a slot as a pipeline does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from headrace.pgoutput.decoder import decode
from headrace.pgoutput.messages import LogicalMessage
from headrace.postgres.ddl_messages import (
    PUBLICATION_PREFIX,
    DdlMessage,
    PublicationMessage,
    is_ddl_prefix,
    parse_ddl,
    parse_publication,
)
from headrace.schema import OWN_SCHEMA, TableSchema

Connection = psycopg.Connection[Any]

_READ = """
SELECT data FROM pg_logical_slot_get_binary_changes(
    %s, NULL, NULL, 'proto_version', '1', 'publication_names', 'nothing', 'messages', 'true')
"""


@dataclass(frozen=True)
class Told:
    """The messages of some statements: of tables, by OID and in order; and of publications."""

    ddl: list[tuple[int, DdlMessage]]
    publications: list[PublicationMessage]
    raw: list[bytes]

    @property
    def tables(self) -> list[TableSchema]:
        return [message.table for _, message in self.ddl if message.table is not None]

    @property
    def names(self) -> list[str]:
        return [str(table.name) for table in self.tables]

    @property
    def dropped(self) -> list[int]:
        return [oid for oid, message in self.ddl if message.dropped]

    def one(self) -> DdlMessage:
        """The only message there is."""
        ((oid, message),) = self.ddl
        assert self.publications == []
        assert message.table is None or message.table.id == oid
        return message

    def table(self) -> TableSchema:
        table = self.one().table
        assert table is not None
        return table


@dataclass(frozen=True)
class Listening:
    """A slot at the source, and the session whose DDL is listened to."""

    connection: Connection
    slot: str

    def told(self, *statements: str) -> Told:
        """What is told of these statements, run one by one."""
        self.read()
        for statement in statements:
            self.connection.execute(statement)
        return self.read()

    def read(self) -> Told:
        decoded = [decode(bytes(data)) for (data,) in self.connection.execute(_READ, (self.slot,)).fetchall()]
        # Behind what is told stands an empty message, so that no change takes its place.
        messages = [
            it for it in decoded if isinstance(it, LogicalMessage) and (it.prefix, it.content) != (OWN_SCHEMA, b"")
        ]
        assert all(it.transactional for it in messages)
        oids = [is_ddl_prefix(it.prefix) for it in messages]
        publications = [parse_publication(it.content) for it in messages if it.prefix == PUBLICATION_PREFIX]
        ddl = [(oid, parse_ddl(it.content)) for it, oid in zip(messages, oids, strict=True) if oid is not None]
        assert len(ddl) + len(publications) == len(messages)
        return Told(ddl, publications, [it.content for it in messages])

    def oid(self, table: str) -> int:
        row = self.connection.execute("SELECT %s::regclass::oid", (table,)).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def listening(connection: Connection) -> Iterator[Listening]:
    """A slot with a publication of no tables: only messages come."""
    connection.execute("SET headrace.skip_ddl = on; CREATE PUBLICATION nothing; RESET headrace.skip_ddl")
    slot = f"ddl_{connection.info.dbname}"
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    try:
        yield Listening(connection, slot)
    finally:
        connection.execute("ROLLBACK")
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
