"""Reading a small range on the connection that holds the snapshot gives what any other reading gives."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from copying import batches_of, published
from headrace.errors import SourceDataError
from headrace.initial_copy import held_reader
from headrace.initial_copy.held_reader import TooLarge, read_held_range
from headrace.initial_copy.plan import plan_copy
from headrace.initial_copy.reader import copy_columns
from headrace.postgres.connection import parse_conninfo
from headrace.postgres.snapshots import export_snapshot

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[Any]


def test_it_reads_what_the_snapshot_shows_as_others_do(conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text, n numeric(5, 2), at timestamptz, raw bytea)")
    connection.execute(
        "INSERT INTO t VALUES (1, E'two\\nlines, \"quoted\"', 1.5, '2026-01-02 03:04:05+01', '\\x00ff'), "
        "(2, '', 'NaN', NULL, ''), (3, NULL, NULL, 'infinity', NULL), (4, 'Grüße 100%', -1, now(), '\\x25')"
    )
    schema = published(connection, "t")
    with export_snapshot(parse_conninfo(conninfo)) as held:
        plan = plan_copy(held.connection, schema)
        connection.execute("DELETE FROM t WHERE id < 3")
        here = read_held_range(held.connection, plan.ranges[0], copy_columns(schema))
        (there,) = batches_of(conninfo, plan.ranges[0], plan, snapshot_name=held.name)
    assert here.rows.num_rows == 4
    assert here.rows.equals(there.rows)
    assert {name: rejected.texts.to_pylist() for name, rejected in here.rejected.items()} == {
        name: rejected.texts.to_pylist() for name, rejected in there.rejected.items()
    }
    assert here.rejected.keys() == {"n", "at"}
    assert here.bytes == there.bytes


def test_an_empty_range_has_its_columns(conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    schema = published(connection, "t")
    with export_snapshot(parse_conninfo(conninfo)) as held:
        plan = plan_copy(held.connection, schema)
        read = read_held_range(held.connection, plan.ranges[0], copy_columns(schema))
    assert (read.rows.schema.names, read.rows.num_rows, read.bytes) == (["id", "note"], 0, 0)


def test_one_column_of_empty_and_missing_texts(conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE TABLE t (note text); INSERT INTO t VALUES (NULL), (''), (NULL)")
    schema = published(connection, "t")
    with export_snapshot(parse_conninfo(conninfo)) as held:
        (part,) = plan_copy(held.connection, schema).ranges
        read = read_held_range(held.connection, part, copy_columns(schema))
    assert read.rows.column("note").to_pylist() == [None, "", None]


def test_more_than_it_seemed_is_given_up_and_the_snapshot_stays(
    conninfo: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_reader, "_LARGEST_BYTES", 1 << 20)
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    connection.execute("INSERT INTO t SELECT n, repeat('x', 1000000) FROM generate_series(1, 5) n")
    schema = published(connection, "t")
    with export_snapshot(parse_conninfo(conninfo)) as held:
        plan = plan_copy(held.connection, schema)
        assert sum(part.estimated_bytes for part in plan.ranges) < held_reader.SMALL_BYTES
        with pytest.raises(TooLarge):
            read_held_range(held.connection, plan.ranges[0], copy_columns(schema))
        connection.execute("DELETE FROM t")
        (there,) = batches_of(conninfo, plan.ranges[0], plan, snapshot_name=held.name)
        assert there.rows.num_rows == 5


def test_an_error_of_the_server_is_ours_and_holds_no_value(conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    connection.execute("INSERT INTO t VALUES (1, 'secret')")
    schema = published(connection, "t")
    with export_snapshot(parse_conninfo(conninfo)) as held:
        (part,) = plan_copy(held.connection, schema).ranges
        broken = type(part)(part.relation, part.columns, "(note || ' value')::int = 1")
        with pytest.raises(SourceDataError) as caught:
            read_held_range(held.connection, broken, copy_columns(schema))
    assert "secret" not in f"{caught.value} {caught.value.detail}"
