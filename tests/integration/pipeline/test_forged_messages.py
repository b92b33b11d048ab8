"""A role without rights forges messages about DDL: tables stay as they are, and go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from headrace.pgoutput.decoder import decode
from headrace.pgoutput.messages import LogicalMessage
from headrace.stores import MemoryStore
from headrace.testing import PostgresServer
from headrace.testing.durable_destination import DurableDestination
from pipelining import assert_equal_tables, piped, pipeline_config

Connection = psycopg.Connection[Any]

_PEEK = """
SELECT data FROM pg_logical_slot_peek_binary_changes(
    %s, NULL, NULL, 'proto_version', '1', 'publication_names', 'pub', 'messages', 'true')
"""


def genuine(connection: Connection, slot: str, prefix: str) -> bytes:
    """The first message of the event triggers with this prefix."""
    decoded = (decode(bytes(data)) for (data,) in connection.execute(_PEEK, (slot,)).fetchall())
    return next(it.content for it in decoded if isinstance(it, LogicalMessage) and it.prefix == prefix)


def without(content: bytes, column: str) -> bytes:
    """The message with one column less."""
    document = json.loads(content)
    columns = document["catalog"]["columns"]
    document["catalog"]["columns"] = [it for it in columns if it["name"] != column]
    return json.dumps(document).encode()


@pytest.mark.parametrize("version", [14, 17])
def test_a_role_without_rights_changes_no_table_by_messages(
    servers: Callable[[int], PostgresServer], version: int, spark: Any, tmp_path: Path
) -> None:
    with servers(version).database() as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        role = f"eve_{connection.info.dbname}"
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        for table in "ab":
            connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, salary int)")
            connection.execute(f"INSERT INTO {table} SELECT n, n * 100 FROM generate_series(1, 10) n")
        connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
        try:
            with capture_logs() as logs:
                _forge(conninfo, connection, role, (spark, tmp_path))
        finally:
            connection.execute(f"DROP ROLE {role}")
    ignored = [line["table"] for line in logs if line["event"] == "a message about a schema change is ignored"]
    assert sorted(ignored) == ["public.a", "public.b"]


def _forge(conninfo: str, connection: Connection, role: str, where: tuple[Any, Path]) -> None:
    spark, root = where
    destination = DurableDestination(root / "destination.db")
    slot = f"peek_{connection.info.dbname}"
    with piped(pipeline_config(conninfo, root), MemoryStore(), destination, spark) as running:
        running.until_ready()
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        connection.execute("ALTER TABLE a ADD COLUMN note text DEFAULT 'told'; ALTER TABLE b ADD COLUMN note text")
        running.until_applied(connection)
        prefixes = {}
        for table in "ab":
            row = connection.execute("SELECT %s::regclass::oid", (table,)).fetchone()
            assert row is not None
            prefixes[table] = f"headrace.ddl.{row[0]}"
        content = genuine(connection, slot, prefixes["a"])
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        connection.execute("ALTER TABLE a ADD COLUMN later int DEFAULT 7")
        running.until_applied(connection)
        with psycopg.connect(conninfo, user=role, password="x", autocommit=True) as eve:
            # A column less, the table as it was before, and rubbish.
            for prefix, forged in (
                (prefixes["a"], without(content, "salary")),
                (prefixes["a"], content),
                (prefixes["a"], b"x"),
                (prefixes["b"], b"x"),
            ):
                eve.execute("SELECT pg_logical_emit_message(true, %s, %s::bytea)", (prefix, forged))
        connection.execute("INSERT INTO a VALUES (11, 1100); INSERT INTO b VALUES (11, 1100)")
        connection.execute("UPDATE a SET salary = -salary WHERE id < 3")
        running.until_applied(connection)
        running.until_ready()
        assert_equal_tables(connection, destination, "public.a", "public.b")
