"""Inserts, updates and deletes from a real server: every column of the record batches, for every replica identity."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from capture import Connection, batch_of, publish
from decoding import change_batches, changes, oid, rejected, table_rows

from headrace.pgoutput import messages as m
from headrace.pgoutput.decoder import decode
from headrace.testing import DEFAULT_VERSION, PostgresServer

pytestmark = pytest.mark.matrix

LONG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i)"


def test_inserts_equal_what_the_table_holds(connection: Connection) -> None:
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, small int2, big int8, price numeric(10,3), name text, fixed char(5),"
        " ok bool, f float8, at timestamptz, local timestamp, day date, raw bytea, gone int)"
    )
    connection.execute("ALTER TABLE t DROP COLUMN gone")
    with publish(connection) as slot:
        connection.execute(
            "INSERT INTO t SELECT i, i % 300, i * 10000000000, i / 7.0, repeat('ä🙂', i % 40), 'x' || i % 10,"
            " i % 2 = 0, i / 3.0::float8, '2025-01-01 00:00:00.000001Z'::timestamptz + i * interval '1 hour 1 us',"
            " '2025-01-01'::timestamp + i * interval '1 s',"
            " '2025-01-01'::date + i, decode(md5(i::text), 'hex') FROM generate_series(-500, 500) i"
        )
        connection.execute("INSERT INTO t (id) VALUES (1000)")
        found = changes(slot.batch(), oid(connection, "t"))
    assert [row["row"] for row in found] == table_rows(connection, "t")
    assert {(row["op"], row["old"], row["old_kind"], row["unchanged"]) for row in found} == {("I", None, None, None)}


def test_change_columns_say_where_a_change_stands(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with publish(connection) as slot:
        before = datetime.now(UTC)
        with connection.transaction():
            connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
            xid = connection.execute("SELECT txid_current()").fetchone()
        connection.execute("DELETE FROM t WHERE id = 1")
        captured = slot.read()
        found = changes(batch_of(captured), oid(connection, "t"))
    begins = [message for message in map(decode, (one.payload for one in captured)) if isinstance(message, m.Begin)]
    assert [row["op"] for row in found] == ["I", "I", "D"]
    assert [row["tx_ordinal"] for row in found] == [0, 1, 0]
    assert [row["commit_lsn"] for row in found] == [begins[0].final_lsn] * 2 + [begins[1].final_lsn]
    assert [row["xid"] for row in found] == [begin.xid for begin in (begins[0], begins[0], begins[1])]
    assert xid is not None
    assert found[0]["xid"] == xid[0]
    assert all(abs(row["commit_time"] - before) < timedelta(minutes=1) for row in found)
    assert [row["start_lsn"] for row in found] == [one.lsn for one in captured if one.kind in "ID"]
    assert found[0]["start_lsn"] < found[1]["start_lsn"] < found[0]["commit_lsn"]


def test_updates_and_deletes_with_the_default_identity(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (v text, id int PRIMARY KEY)")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t VALUES ('a', 1)")
        connection.execute("UPDATE t SET v = NULL")
        connection.execute("UPDATE t SET id = 2, v = 'c'")
        connection.execute("DELETE FROM t")
        found = changes(slot.batch(), oid(connection, "t"))
    assert [(row["op"], row["old_kind"], row["row"], row["old"]) for row in found] == [
        ("I", None, {"v": "a", "id": 1}, None),
        ("U", None, {"v": None, "id": 1}, None),
        ("U", "K", {"v": "c", "id": 2}, {"v": None, "id": 1}),
        ("D", "K", None, {"v": None, "id": 2}),
    ]


def test_identity_full_sends_the_old_row(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int, v text)")
    connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t VALUES (1, 'a'), (1, 'a')")
        connection.execute("UPDATE t SET v = 'b'")
        connection.execute("DELETE FROM t")
        found = changes(slot.batch(), oid(connection, "t"))
    assert [(row["op"], row["old_kind"], row["row"], row["old"]) for row in found] == [
        *[("I", None, {"id": 1, "v": "a"}, None)] * 2,
        *[("U", "O", {"id": 1, "v": "b"}, {"id": 1, "v": "a"})] * 2,
        *[("D", "O", None, {"id": 1, "v": "b"})] * 2,
    ]


def test_identity_using_index(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, v int)")
    connection.execute("CREATE UNIQUE INDEX t_code ON t (code)")
    connection.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX t_code")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t VALUES (1, 'a', 1)")
        connection.execute("UPDATE t SET id = 2")
        connection.execute("UPDATE t SET code = 'b'")
        connection.execute("DELETE FROM t")
        found = change_batches(slot.batch(), oid(connection, "t"))
    assert [column.key for column in found[0].relation.columns] == [False, True, False]
    assert [(row["op"], row["old_kind"], row["old"]) for row in found[0].changes.to_pylist()] == [
        ("I", None, None),
        ("U", None, None),
        ("U", "K", {"id": None, "code": "a", "v": None}),
        ("D", "K", {"id": None, "code": "b", "v": None}),
    ]


def test_identity_nothing_publishes_inserts_only(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int, v text)")
    connection.execute("ALTER TABLE t REPLICA IDENTITY NOTHING")
    with publish(connection, "FOR TABLE t WITH (publish = 'insert')") as slot:
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        connection.execute("DELETE FROM t")
        found = changes(slot.batch(), oid(connection, "t"))
    assert [(row["op"], row["row"]) for row in found] == [("I", {"id": 1, "v": "a"})]


def _toasted(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (a text, id int PRIMARY KEY, n int, b text)")
    connection.execute("ALTER TABLE t ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL")


def test_unchanged_toast_is_neither_null_nor_a_value(connection: Connection) -> None:
    _toasted(connection)
    with publish(connection) as slot:
        connection.execute(f"INSERT INTO t VALUES ({LONG}, 1, 0, {LONG}), ('short', 2, 0, NULL)")
        connection.execute("UPDATE t SET n = 1")
        connection.execute("UPDATE t SET b = NULL WHERE id = 1")
        connection.execute("UPDATE t SET id = 3 WHERE id = 1")
        found = changes(slot.batch(), oid(connection, "t"))
    updates = [(row["unchanged"], row["row"], row["old"]) for row in found if row["op"] == "U"]
    assert updates == [
        ([0, 3], {"a": None, "id": 1, "n": 1, "b": None}, None),
        (None, {"a": "short", "id": 2, "n": 1, "b": None}, None),
        ([0], {"a": None, "id": 1, "n": 1, "b": None}, None),
        ([0], {"a": None, "id": 3, "n": 1, "b": None}, {"a": None, "id": 1, "n": None, "b": None}),
    ]


def test_unchanged_toast_comes_from_the_old_row_if_that_was_sent(connection: Connection) -> None:
    _toasted(connection)
    connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with publish(connection) as slot:
        connection.execute(f"INSERT INTO t VALUES ({LONG}, 1, 0, {LONG} || 'b'), ('short', 2, 0, NULL)")
        connection.execute("DELETE FROM t WHERE id = 2")
        connection.execute("UPDATE t SET n = 1 WHERE id = 1")
        batch = slot.batch()
        found = changes(batch, oid(connection, "t"))
    sent = [
        message for message in (decode(batch.message(i)) for i in range(len(batch))) if isinstance(message, m.Update)
    ]
    assert [value is m.Unchanged.UNCHANGED for value in sent[0].new] == [True, False, False, True]
    assert found[-1]["op"] == "U"
    assert found[-1]["unchanged"] is None
    assert [found[-1]["row"]] == table_rows(connection, "t")


def test_column_lists_from_15_on(servers: Callable[[int], PostgresServer]) -> None:
    version = max(DEFAULT_VERSION, 15)
    with servers(version).database() as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, secret text, v text)")
        with publish(connection, "FOR TABLE t (v, id)") as slot:
            connection.execute("INSERT INTO t VALUES (1, 'hush', 'a')")
            connection.execute("UPDATE t SET id = 2")
            found = changes(slot.batch(), oid(connection, "t"))
    assert [(row["row"], row["old"]) for row in found] == [
        ({"id": 1, "v": "a"}, None),
        ({"id": 2, "v": "a"}, {"id": 1, "v": None}),
    ]


def test_generated_columns_are_published_on_demand_from_18_on(servers: Callable[[int], PostgresServer]) -> None:
    with servers(18).database() as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
        with (
            publish(connection, "FOR TABLE t WITH (publish_generated_columns = stored)") as slot,
            publish(connection, "FOR TABLE t", name="without") as without,
        ):
            connection.execute("INSERT INTO t VALUES (21)")
            assert [row["row"] for row in changes(slot.batch(), oid(connection, "t"))] == [{"id": 21, "twice": 42}]
            assert [row["row"] for row in changes(without.batch(), oid(connection, "t"))] == [{"id": 21}]


def test_values_without_an_arrow_value_are_rejected_and_null(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, price numeric(8,2), at timestamptz, v text)")
    connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with publish(connection) as slot:
        with connection.transaction():
            connection.execute(
                "INSERT INTO t VALUES (1, 1.5, now(), 'fine'), (2, 'NaN', 'infinity', 'not'), (3, 2, NULL, '')"
            )
        connection.execute("UPDATE t SET v = 'still not' WHERE id = 2")
        connection.execute("DELETE FROM t WHERE id = 2")
        batch = slot.batch()
        found = changes(batch, oid(connection, "t"))
        refused = rejected(batch, oid(connection, "t"))
    lsns = list(dict.fromkeys(row["commit_lsn"] for row in found))
    assert found[0]["row"]["price"] == Decimal("1.50")
    assert found[1]["row"] == {"id": 2, "price": None, "at": None, "v": "not"}
    key = ("column", "commit_lsn", "tx_ordinal", "old", "text")
    assert sorted(tuple(row[name] for name in key) for row in refused) == sorted(
        [
            ("price", lsns[0], 1, False, "NaN"),
            ("at", lsns[0], 1, False, "infinity"),
            *(
                (name, lsns[1], 0, old, text)
                for name, text in (("price", "NaN"), ("at", "infinity"))
                for old in (True, False)
            ),
            ("price", lsns[2], 0, True, "NaN"),
            ("at", lsns[2], 0, True, "infinity"),
        ]
    )


def test_nothing_rejected_is_an_empty_batch(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t VALUES (1)")
        (found,) = change_batches(slot.batch(), oid(connection, "t"))
    assert found.rejected.num_rows == 0
    assert found.changes.schema.field("commit_time").type == pa.timestamp("us", "UTC")


def test_a_table_without_columns(connection: Connection) -> None:
    connection.execute("CREATE TABLE t ()")
    connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t DEFAULT VALUES")
        connection.execute("INSERT INTO t DEFAULT VALUES")
        connection.execute("DELETE FROM t")
        found = changes(slot.batch(), oid(connection, "t"))
    assert [(row["op"], row["row"], row["old"]) for row in found[:2]] == [("I", {}, None)] * 2
    assert [(row["op"], row["row"], row["old"]) for row in found[2:]] == [("D", None, {})] * 2
