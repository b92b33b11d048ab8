"""A pipeline whose publication changes while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from headrace.destinations.memory import MemoryDestination
from headrace.errors import TableNotFound
from headrace.stores import MemoryStore
from headrace.table_state import State
from pipelining import Piped, destination_rows, piped, pipeline_config, source_rows

__all__ = ["Changing", "changing", "create", "write"]

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Changing:
    """A pipeline whose publication changes."""

    conninfo: str
    connection: Connection
    destination: MemoryDestination
    store: MemoryStore
    running: Piped

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement)

    def oid(self, table: str) -> int:
        row = self.connection.execute("SELECT %s::regclass::oid::int8", (table,)).fetchone()
        assert row is not None
        return int(row[0])

    def same(self, table: str, shown: str | None = None) -> bool:
        """Whether the destination has the source's rows, or what `shown` selects of them."""
        try:
            return source_rows(self.connection, shown or table) == destination_rows(self.destination, table)
        except (TableNotFound, KeyError):
            return False

    def until_same(self, table: str, shown: str | None = None) -> None:
        self.running.until(lambda: self.same(table, shown))

    def until_left(self, table: str) -> None:
        self.running.until(lambda: table not in self.running.status.tables)

    def until_joined(self, table: str) -> None:
        self.running.until(lambda: table in self.running.status.tables)

    def copies(self, table: str) -> int:
        # A copy's rows are seen before the store has it.
        self.running.until_ready()
        history = self.store.get_table_state_history(self.oid(table))
        return [entry.state.state for entry in history].count(State.FINISHED_COPY)


def create(connection: Connection, *names: str) -> None:
    for name in names:
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text, n int DEFAULT 0)")
        connection.execute(f"INSERT INTO {name} SELECT n, 'copied ' || n, n FROM generate_series(1, 20) n")


def write(connection: Connection, *names: str) -> None:
    for name in names:
        connection.execute(f"INSERT INTO {name} SELECT max(id) + 1, 'streamed' FROM {name}")
        connection.execute(f"UPDATE {name} SET v = v || '+' WHERE id IN (1, 2)")
        connection.execute(f"DELETE FROM {name} WHERE id = (SELECT min(id) FROM {name} WHERE id > 2)")


@contextmanager
def changing(
    conninfo: str, root: Path, spark: Any, tables: str, create_tables: tuple[str, ...], **settings: Any
) -> Iterator[Changing]:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA shop; CREATE SCHEMA attic")
        create(connection, *create_tables)
        connection.execute(f"CREATE PUBLICATION pub FOR {tables}")
        destination, store = MemoryDestination(), MemoryStore()
        config = pipeline_config(conninfo, root, **{"source": {"install": "never"}, **settings})
        with piped(config, store, destination, spark) as running:
            running.until_ready()
            yield Changing(conninfo, connection, destination, store, running)
