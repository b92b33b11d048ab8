"""Postgres's own subscriber beside a pipeline: a second database that applies the same publication."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.hstore import register_hstore
from psycopg.types.string import TextLoader

from headrace.testing import PostgresServer
from headrace.testing.canonical import canonical, canonical_text
from pipelining import PUBLICATION

__all__ = ["Subscriber", "canonical_table", "subscribed"]

Connection = psycopg.Connection[Any]

_MARKERS = "CREATE TABLE marker (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)"
# Types that psycopg makes objects of, where the lakehouse has Postgres's text.
_AS_TEXT = ("time", "timetz", "interval", "json", "jsonb", "inet", "cidr", "int4range", "tstzrange", "int4multirange")


class Subscriber:
    """The subscriber's tables, and when they have everything."""

    def __init__(self, source: Connection, connection: Connection) -> None:
        self._source, self.connection = source, connection

    def until_applied(self, timeout: float = 180) -> None:
        """Everything committed at the source before now is here: a row inserted now has come through."""
        row = self._source.execute("INSERT INTO marker DEFAULT VALUES RETURNING id").fetchone()
        deadline = time.monotonic() + timeout
        while not self.connection.execute("SELECT 1 FROM marker WHERE id = %s", row).fetchall():
            assert time.monotonic() < deadline, f"the subscriber never came to marker {row}"
            time.sleep(0.05)

    def rows(self, table: str) -> list[str]:
        return canonical_table(self.connection, table)


@contextmanager
def subscribed(server: PostgresServer, conninfo: str, source: Connection, ddl: str) -> Iterator[Subscriber]:
    """`ddl` has made the source's tables and their publication, all still empty; here it makes the same tables."""
    slot = f"native_{source.info.dbname}"
    source.execute(_MARKERS)
    # Not among the pipeline's tables.
    source.execute("CREATE PUBLICATION marker FOR TABLE marker")
    # By hand: CREATE SUBSCRIPTION would wait for its own transaction, on the same server.
    source.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    with server.database("subscriber") as info, psycopg.connect(info, autocommit=True) as connection:
        connection.execute(ddl)
        connection.execute(_MARKERS)
        connection.execute(
            sql.SQL(
                "CREATE SUBSCRIPTION {} CONNECTION {} PUBLICATION {}, marker "
                "WITH (create_slot = false, copy_data = false, slot_name = {})"
            ).format(sql.Identifier(slot), sql.Literal(conninfo), sql.Identifier(PUBLICATION), sql.Literal(slot))
        )
        try:
            yield Subscriber(source, connection)
        finally:
            name = sql.Identifier(slot)
            connection.execute(sql.SQL("ALTER SUBSCRIPTION {} DISABLE").format(name))
            connection.execute(sql.SQL("ALTER SUBSCRIPTION {} SET (slot_name = NONE)").format(name))
            connection.execute(sql.SQL("DROP SUBSCRIPTION {}").format(name))


def canonical_table(connection: Connection, table: str) -> list[str]:
    """A table's rows as psycopg reads them, canonical, sorted."""
    adapters = connection.adapters
    for name in _AS_TEXT:
        info = adapters.types[name]
        adapters.register_loader(info.oid, TextLoader)
    # Without this, their arrays are text.
    for name in ("hstore", "mood"):
        found = psycopg.types.TypeInfo.fetch(connection, name)
        assert found is not None
        found.register(connection)
        if name == "hstore":
            register_hstore(found, connection)
    with connection.cursor() as cursor:
        rows = cursor.execute(f"SELECT * FROM {table}").fetchall()
        names = [column.name for column in cursor.description or ()]
    return sorted(canonical_text(canonical(dict(zip(names, row, strict=True)))) for row in rows)
