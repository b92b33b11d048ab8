"""A course of SQL after which a server has sent every kind of message its version knows.

Run as a script, it refreshes the corpus of the fuzzer and of the property tests from real servers:

    python tests/integration/pgoutput/every_kind.py fuzz/corpus
"""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg
from capture import SERVER_PROTOCOL, Captured, Connection, publish

from headrace.testing import VERSIONS, PostgresServer

__all__ = ["TWO_PHASE", "capture_every_kind"]

TWO_PHASE = {"max_prepared_transactions": "10"}
"""Settings a server needs for this."""

_PLAIN = """
    INSERT INTO item VALUES (1, 'one', 1.50, NULL, repeat('x', 30), 'sad', ARRAY[1,NULL,3]);
    UPDATE item SET name = 'ONE — ünï🙂' WHERE id = 1;
    UPDATE item SET id = 2 WHERE id = 1;
    DELETE FROM item WHERE id = 2;
    INSERT INTO fully VALUES (1, (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 70) i), NULL);
    UPDATE fully SET note = 'n';
    DELETE FROM fully;
    INSERT INTO toasted VALUES (1, (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 70) i), 1);
    UPDATE toasted SET n = 2;
    INSERT INTO "Odd "" näme" DEFAULT VALUES;
    TRUNCATE item, fully RESTART IDENTITY CASCADE;
    SELECT pg_logical_emit_message(true, 'headrace', 'in the transaction');
    SELECT pg_logical_emit_message(false, 'headrace', 'at once');
"""

_TABLES = """
    CREATE TYPE mood AS ENUM ('sad', 'glad');
    CREATE TABLE item (id int PRIMARY KEY, name text, n numeric(8,2), at timestamptz, pad char(32), m mood, a int[]);
    CREATE TABLE fully (id int, long text, note text);
    ALTER TABLE fully REPLICA IDENTITY FULL;
    ALTER TABLE fully ALTER long SET STORAGE EXTERNAL;
    CREATE TABLE toasted (id int PRIMARY KEY, long text, n int);
    ALTER TABLE toasted ALTER long SET STORAGE EXTERNAL;
    CREATE TABLE "Odd "" näme" ();
    CREATE TABLE big (id int PRIMARY KEY, pad text, m mood);
"""


def _fill(rows: str) -> str:
    return f"INSERT INTO big SELECT i, repeat('p', 80), 'glad' FROM generate_series({rows}) i"


def _plain(connection: Connection) -> None:
    for statement in filter(None, map(str.strip, _PLAIN.split(";"))):
        connection.execute(statement)
    connection.execute("SELECT pg_replication_origin_create('elsewhere')")
    connection.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
    with connection.transaction():
        connection.execute("SELECT pg_replication_origin_xact_setup('0/ABCDEF', now())")
        connection.execute("INSERT INTO item (id) VALUES (77)")
    connection.execute("SELECT pg_replication_origin_session_reset()")


def _streamed(connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_logical_emit_message(true, 'headrace', 'in a stream')")
        connection.execute(_fill("1, 2000"))
        with connection.transaction(force_rollback=True):
            connection.execute(_fill("2001, 4000"))
        connection.execute("UPDATE big SET id = -id WHERE id < 5")
        connection.execute("DELETE FROM big WHERE id < 10")
        connection.execute("TRUNCATE toasted")
    with connection.transaction(force_rollback=True):
        connection.execute(_fill("5001, 7000"))
        connection.execute("CREATE TABLE more ()")


def _prepared(connection: Connection) -> None:
    for gid, work, end in (
        ("small", "INSERT INTO item (id) VALUES (100)", "COMMIT"),
        ("small again", "INSERT INTO item (id) VALUES (101)", "ROLLBACK"),
        ("large", _fill("10001, 12000"), "COMMIT"),
    ):
        connection.execute("BEGIN")
        connection.execute(work)
        connection.execute(f"PREPARE TRANSACTION '{gid}'")
        connection.execute(f"{end} PREPARED '{gid}'")


def capture_every_kind(connection: Connection, version: int) -> list[Captured]:
    """The server must have TWO_PHASE's settings. Version 14 knows no two-phase messages and no 'origin' option."""
    connection.execute("SET logical_decoding_work_mem = '64kB'")
    connection.execute(_TABLES)
    protocol = SERVER_PROTOCOL[version]
    options = {"messages": "true", "streaming": "parallel" if protocol >= 4 else "on"}
    if protocol >= 3:
        options["two_phase"] = "on"
    with publish(connection, two_phase=protocol >= 3) as slot:
        _plain(connection)
        captured = slot.read(protocol=1, messages="true")
        _streamed(connection)
        if protocol >= 3:
            _prepared(connection)
        captured += slot.read(protocol=protocol, **options)
    return captured


def _write(directory: Path) -> None:
    for version in VERSIONS:
        with (
            PostgresServer(version, settings=TWO_PHASE) as server,
            server.database() as conninfo,
            psycopg.connect(conninfo, autocommit=True) as connection,
        ):
            captured = capture_every_kind(connection, version)
        seen: dict[tuple[object, ...], int] = {}
        lines = []
        for one in captured:
            # A few of each shape say all that thousands would.
            shape = (one.kind, one.streamed, one.payload[1:5] if one.kind in "IUD" else None)
            seen[shape] = seen.get(shape, 0) + 1
            if seen[shape] <= 2:
                lines.append(f"{'streamed' if one.streamed else 'plain'} {one.payload.hex()}\n")
        (directory / f"postgres-{version}.hex").write_text("".join(lines))


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
