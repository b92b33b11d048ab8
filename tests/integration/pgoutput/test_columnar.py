"""The steps of a table, from a real server: schema versions, truncates, tables side by side, sizes."""

from __future__ import annotations

import numpy as np
import pytest
from capture import Captured, Connection, batch_of, publish
from decoding import change_batches, changes, oid, table_rows

from headrace.errors import ProtocolError
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.changes import ChangeBatch
from headrace.pgoutput.columnar import (
    MAX_ROWS,
    RelationStep,
    TruncateStep,
    decode_steps,
    logical_messages,
)
from headrace.pgoutput.envelope import envelope
from headrace.pgtypes.registry import TypeOptions
from headrace.schema import PgType

pytestmark = pytest.mark.matrix


def steps(batch: MessageBatch, table_id: int) -> list[object]:
    return list(decode_steps(batch, envelope(batch), table_id, {}))


def test_schema_versions_across_transactions(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t VALUES (1, 'x')")
        connection.execute("ALTER TABLE t ADD b numeric(6,2)")
        connection.execute("INSERT INTO t VALUES (2, 'y', 1.25)")
        connection.execute("ALTER TABLE t DROP a")
        connection.execute("ALTER TABLE t RENAME b TO c")
        connection.execute("INSERT INTO t VALUES (3, 2)")
        found = change_batches(slot.batch(), oid(connection, "t"))
    assert [[column.name for column in each.relation.columns] for each in found] == [
        ["id", "a"], ["id", "a", "b"], ["id", "c"],
    ]  # fmt: skip
    assert [str(row["row"]) for each in found for row in each.changes.to_pylist()] == [
        "{'id': 1, 'a': 'x'}",
        "{'id': 2, 'a': 'y', 'b': Decimal('1.25')}",
        "{'id': 3, 'c': Decimal('2.00')}",
    ]


def test_schema_versions_inside_one_transaction(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, a int)")
    with publish(connection) as slot:
        with connection.transaction():
            connection.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
            connection.execute("ALTER TABLE t ALTER a TYPE text")
            connection.execute("INSERT INTO t VALUES (3, 'three')")
            connection.execute("ALTER TABLE t ADD b bool")
            connection.execute("INSERT INTO t VALUES (4, 'four', true)")
        batch = slot.batch()
        found = change_batches(batch, oid(connection, "t"))
    rows = [row for each in found for row in each.changes.to_pylist()]
    assert [list(row["row"].values()) for row in rows] == [[1, 1], [2, 2], [3, "three"], [4, "four", True]]
    assert len({row["commit_lsn"] for row in rows}) == 1
    assert [row["tx_ordinal"] for row in rows] == [0, 1, 2, 3]
    assert [type(step).__name__ for step in steps(batch, oid(connection, "t"))] == ["RelationStep", "ChangeBatch"] * 3


def test_a_relation_that_only_repeats_makes_no_new_batch(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t VALUES (1)")
        first = slot.read()
        connection.execute("INSERT INTO t VALUES (2)")
        second = slot.read()
        batch = batch_of(first + second)
    assert sum(one.kind == "R" for one in first + second) == 2
    (found,) = change_batches(batch, oid(connection, "t"))
    assert [row["row"]["id"] for row in found.changes.to_pylist()] == [1, 2]


def test_truncates_stand_between_the_changes(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY)")
    with publish(connection) as slot:
        with connection.transaction():
            connection.execute("INSERT INTO t VALUES (1); INSERT INTO other VALUES (1)")
            connection.execute("TRUNCATE t, other RESTART IDENTITY")
            connection.execute("INSERT INTO t VALUES (2)")
        connection.execute("TRUNCATE other")
        batch = slot.batch()
        tables = oid(connection, "t"), oid(connection, "other")
    relation, before, truncate, after = steps(batch, tables[0])
    assert isinstance(relation, RelationStep)
    assert isinstance(truncate, TruncateStep)
    assert isinstance(before, ChangeBatch)
    assert isinstance(after, ChangeBatch)
    (row,) = after.changes.to_pylist()
    assert (truncate.commit_lsn, truncate.tx_ordinal, row["tx_ordinal"]) == (row["commit_lsn"], 2, 3)
    assert (truncate.xid, truncate.commit_time) == (row["xid"], round(row["commit_time"].timestamp() * 1e6))
    assert set(truncate.truncate.relation_ids) == set(tables)
    assert truncate.truncate.restart_identity
    kinds = [type(step).__name__ for step in steps(batch, tables[1])]
    assert kinds == ["RelationStep", "ChangeBatch", "TruncateStep", "TruncateStep"]


def test_logical_messages_count_when_they_are_transactional(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with publish(connection) as slot:
        connection.execute("SELECT pg_logical_emit_message(false, 'p', 'outside')")
        with connection.transaction():
            connection.execute("INSERT INTO t VALUES (1)")
            connection.execute("SELECT pg_logical_emit_message(true, 'p', 'inside')")
            connection.execute("INSERT INTO t VALUES (2)")
        batch = slot.batch(messages="true")
        found = changes(batch, oid(connection, "t"))
    (emitted,) = logical_messages(batch, envelope(batch))
    assert (emitted.message.content, emitted.message.prefix, emitted.tx_ordinal) == (b"inside", "p", 1)
    assert emitted.commit_lsn == found[0]["commit_lsn"]
    assert [row["tx_ordinal"] for row in found] == [0, 2]


def test_tables_interleaved(connection: Connection) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (v text, id int PRIMARY KEY)")
    with publish(connection) as slot:
        connection.execute(
            "DO $$ BEGIN FOR i IN 1..300 LOOP"
            " INSERT INTO a VALUES (i, repeat('a', i)); INSERT INTO b VALUES (repeat('b', 300 - i), i);"
            " IF i % 3 = 0 THEN UPDATE a SET v = 'third' WHERE id = i; DELETE FROM b WHERE id = i; END IF;"
            " IF i % 50 = 0 THEN COMMIT; END IF; END LOOP; END $$"
        )
        batch = slot.batch()
        of_a, of_b = changes(batch, oid(connection, "a")), changes(batch, oid(connection, "b"))
    final_a = {row["row"]["id"]: row["row"] for row in of_a}
    final_b = {row["row"]["id"]: row["row"] for row in of_b if row["op"] == "I"}
    for row in of_b:
        if row["op"] == "D":
            del final_b[row["old"]["id"]]
    assert sorted(final_a.values(), key=lambda row: row["id"]) == table_rows(connection, "a")
    assert {row["v"] for row in final_b.values()} == {row["v"] for row in table_rows(connection, "b")}
    places = sorted((row["commit_lsn"], row["tx_ordinal"]) for row in of_a + of_b)
    assert len(set(places)) == len(places) == 800
    assert {lsn: max(o for at, o in places if at == lsn) + 1 for lsn, _ in places} == {
        lsn: sum(at == lsn for at, _ in places) for lsn, _ in places
    }


def test_a_part_of_a_split_transaction_goes_on_counting(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t SELECT generate_series(1, 10)")
        connection.execute("INSERT INTO t VALUES (11)")
        whole = slot.read()
        table = oid(connection, "t")
    relation = next(one for one in whole if one.kind == "R")
    inserts = [index for index, one in enumerate(whole) if one.kind == "I"]
    first = batch_of(whole[: inserts[4]])
    second = batch_of([relation, whole[0], *whole[inserts[4] :]], first_ordinal=4)
    assert changes(first, table) + changes(second, table) == changes(batch_of(whole), table)
    assert [row["tx_ordinal"] for row in changes(second, table)] == [4, 5, 6, 7, 8, 9, 0]


def test_more_rows_than_one_batch_takes(connection: Connection) -> None:
    count = 2 * MAX_ROWS + 7
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with publish(connection) as slot:
        connection.execute(f"INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, {count}) i")
        found = change_batches(slot.batch(), oid(connection, "t"))
    assert [each.changes.num_rows for each in found] == [MAX_ROWS, MAX_ROWS, 7]
    ids = np.concatenate([each.changes["row"].field("id").to_numpy() for each in found])
    ordinals = np.concatenate([each.changes["tx_ordinal"].to_numpy() for each in found])
    assert (ids == np.arange(1, count + 1)).all()
    assert (ordinals == np.arange(count)).all()
    assert found[1].changes["row"].field("v")[0].as_py() == f"v{MAX_ROWS + 1}"


def test_a_batch_never_stretches_over_more_bytes_than_its_offsets_reach(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t SELECT i, repeat('v', i * 10) FROM generate_series(0, 40) i")
        batch, table = slot.batch(), oid(connection, "t")
    whole = changes(batch, table)
    monkeypatch.setattr("headrace.pgoutput.columnar._MAX_SPAN", 300)
    pieces = change_batches(batch, table)
    # Whole rows only: one that is larger than the limit stands alone.
    assert pieces[0].changes.num_rows > 1
    assert pieces[-1].changes.num_rows == 1
    assert [row for piece in pieces for row in piece.changes.to_pylist()] == whole


def test_a_table_that_is_not_in_the_batch_has_no_steps(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t VALUES (1)")
        batch = slot.batch()
    assert steps(batch, 1) == []
    assert steps(MessageBatch.of([]), 1) == []


def test_types_that_are_not_built_in(connection: Connection) -> None:
    connection.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN price AS numeric(8,2) CHECK (VALUE >= 0)"
    )
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, m mood, p price, n numeric)")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t VALUES (1, 'glad', 1.5, 7)")
        batch = slot.batch()
        table = oid(connection, "t")
        mood, price = (
            int(row[0])
            for row in connection.execute("SELECT oid FROM pg_type WHERE typname IN ('mood', 'price') ORDER BY typname")
        )
    types = {
        mood: PgType(mood, "mood", "public", "e"),
        price: PgType(price, "price", "public", "d", base=PgType(1700, "numeric"), base_typmod=(8 << 16 | 2) + 4),
    }
    (known,) = change_batches(batch, table, types)
    (unknown,) = change_batches(batch, table)
    (chosen,) = decode_with(batch, table, TypeOptions(numeric_without_scale=(20, 4)))
    assert str(known.changes["row"][0].as_py()["p"]) == "1.50"
    assert known.changes["row"][0].as_py()["m"] == "glad"
    # Nobody described them: Postgres's text, never a failure.
    assert unknown.changes["row"][0].as_py() == {"id": 1, "m": "glad", "p": "1.50", "n": "7"}
    assert str(chosen.changes["row"][0].as_py()["n"]) == "7.0000"


def decode_with(batch: MessageBatch, table: int, options: TypeOptions) -> list[ChangeBatch]:
    found = decode_steps(batch, envelope(batch), table, {}, options)
    return [step for step in found if isinstance(step, ChangeBatch)]


def test_a_change_before_its_relation_is_malformed(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with publish(connection) as slot:
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("TRUNCATE t")
        connection.execute("INSERT INTO t VALUES (2)")
        captured: list[Captured] = slot.read()
        table = oid(connection, "t")
    without = batch_of([one for one in captured if one.kind != "R"])
    late = batch_of([one for one in captured if one.kind != "R"] + [one for one in captured if one.kind == "R"])
    after_truncate = batch_of([one for one in captured if one.kind not in "RI"] + captured[:1] + captured[2:4])
    for batch in (without, late, after_truncate):
        with pytest.raises(ProtocolError, match="before its relation"):
            steps(batch, table)
