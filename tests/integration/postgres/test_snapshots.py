"""postgres.snapshots against a real server: what `visible` says is what the snapshot shows."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest

from headrace.postgres.connection import connect, parse_conninfo
from headrace.postgres.snapshots import current_snapshot, export_snapshot

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]


def test_an_exported_snapshot_is_shared_and_stands_still(connection: Connection, conninfo: str) -> None:
    connection.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    config = parse_conninfo(conninfo)
    with export_snapshot(config, pipeline=3) as exported, connect(config, "copy") as reader:
        connection.execute("INSERT INTO t VALUES (2)")
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reader.execute(psycopg.sql.SQL("SET TRANSACTION SNAPSHOT {}").format(exported.name))
        assert reader.execute("SELECT id FROM t").fetchall() == [(1,)]
        assert current_snapshot(reader) == exported.snapshot
        assert exported.connection.execute("SELECT id FROM t").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            exported.connection.execute("INSERT INTO t VALUES (3)")
    assert exported.connection.closed


def test_a_held_snapshot_has_no_time_limit(connection: Connection, conninfo: str) -> None:
    database = psycopg.sql.Identifier(parse_conninfo(conninfo).name)
    names = ["statement_timeout", "idle_in_transaction_session_timeout"]
    if connection.info.server_version >= 170000:
        names.append("transaction_timeout")
    for name in names:
        connection.execute(psycopg.sql.SQL("ALTER DATABASE {} SET {} = '5s'").format(database, psycopg.sql.SQL(name)))
    with export_snapshot(parse_conninfo(conninfo)) as exported:
        rows = [exported.connection.execute(f"SHOW {name}").fetchone() for name in names]
    assert rows == [("0",)] * len(names)


def test_visible_is_what_the_snapshot_shows_among_committed_running_and_later(
    connection: Connection, conninfo: str
) -> None:
    connection.execute("CREATE TABLE t (id serial, xid xid8 DEFAULT pg_current_xact_id())")
    insert = "INSERT INTO t DEFAULT VALUES"
    with psycopg.connect(conninfo) as first, psycopg.connect(conninfo) as second:
        connection.execute(insert)
        first.execute(insert)
        connection.execute(insert)
        second.execute("SAVEPOINT s")  # a subtransaction's id must not matter: pgoutput names the top-level one
        second.execute(insert)
        connection.execute(insert)
        with export_snapshot(parse_conninfo(conninfo)) as exported:
            connection.execute(insert)
            first.commit()
            second.commit()
            shown = {row[0] for row in exported.connection.execute("SELECT id FROM t").fetchall()}
    rows = connection.execute("SELECT id, (xid::text::numeric %% 4294967296)::int8 FROM t ORDER BY id", ()).fetchall()
    visible = exported.snapshot.visible(np.array([xid for _, xid in rows], dtype=np.uint32))
    assert len(exported.snapshot.xip) == 2
    assert {row[0] for row, seen in zip(rows, visible, strict=True) if seen} == shown
    assert 0 < len(shown) < len(rows)
