"""What a real server sends, folded and applied to the table as it was, gives the table as it is."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from capture import Connection, publish
from decoding import change_batches, oid, table_rows

from folding import apply_to_bag, apply_to_keys, key_of
from headrace.destinations.fold import fold_table

pytestmark = pytest.mark.matrix

# Too long to stay in the row, and not to be compressed.
LONG = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 100))"

KEYED = {
    "default": "CREATE TABLE t (doc text, id int PRIMARY KEY, n int, note text)",
    "index": "CREATE TABLE t (doc text, id int NOT NULL, n int, note text); CREATE UNIQUE INDEX i ON t (id);"
    "ALTER TABLE t REPLICA IDENTITY USING INDEX i",
    "full": "CREATE TABLE t (doc text, id int PRIMARY KEY, n int, note text); ALTER TABLE t REPLICA IDENTITY FULL",
    "deferrable": "CREATE TABLE t (doc text, id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, n int, note text);"
    "ALTER TABLE t REPLICA IDENTITY FULL",
}


def statements(rng: random.Random, *, deferrable: bool) -> list[str]:
    """One transaction. Free keys are those from 100 on: rows go there and come back."""
    some = f"id % {rng.randint(2, 5)} = {rng.randint(0, 1)}"
    one, other = rng.sample(range(12), 2)
    choices = [
        [f"UPDATE t SET n = n + 1 WHERE {some}"],
        [f"UPDATE t SET doc = {LONG}, n = 0 WHERE id = {one}"],
        [f"UPDATE t SET note = {LONG} WHERE id = {one}", f"UPDATE t SET note = NULL WHERE id = {other}"],
        [f"DELETE FROM t WHERE id = {one}"],
        [f"INSERT INTO t VALUES ({LONG}, {one}, 7, 'again') ON CONFLICT DO NOTHING"],
        [f"DELETE FROM t WHERE id = {one}", f"INSERT INTO t VALUES ({LONG}, {one}, 8, NULL)"],
        [f"UPDATE t SET id = id + 100 WHERE id IN ({one}, {other}) AND NOT EXISTS (SELECT FROM t WHERE id > 99)"],
        ["UPDATE t SET id = id - 100 WHERE id > 99 AND NOT EXISTS (SELECT FROM t o WHERE o.id = t.id - 100)"],
        [
            f"UPDATE t SET id = 1000 WHERE id = {one}",
            f"UPDATE t SET id = {one} WHERE id = {other}",
            f"UPDATE t SET id = {other} WHERE id = 1000",
        ],
    ]
    if deferrable:
        choices = [[sql for sql in choice if "ON CONFLICT" not in sql] for choice in choices]
        choices.append([f"UPDATE t SET id = {one} + {other} - id WHERE id IN ({one}, {other})"])
        choices.append([f"INSERT INTO t VALUES ('new', {one}, 9, 'new')", f"DELETE FROM t WHERE id = {one} AND n <> 9"])
        # A row that was new before goes too: then only the last one stays.
        choices[-1].insert(0, f"UPDATE t SET n = 1 WHERE id = {one}")
    return rng.choice(choices)


@pytest.mark.parametrize("identity", KEYED)
def test_table_with_a_key(connection: Connection, identity: str) -> None:
    rng = random.Random(identity)
    connection.execute(KEYED[identity])
    connection.execute(f"INSERT INTO t SELECT {LONG}, i, i, {LONG} FROM generate_series(0, 9) i")
    unresolved = origins = 0
    with publish(connection) as slot:
        for _ in range(30):
            before = {key_of(row, ["id"]): row for row in table_rows(connection, "t")}
            for _ in range(rng.randint(1, 6)):
                with connection.transaction():
                    for statement in statements(rng, deferrable=identity == "deferrable"):
                        connection.execute(statement)
            found = change_batches(slot.batch(), oid(connection, "t"))
            if not found:
                continue
            folded = fold_table(pa.Table.from_batches([each.changes for each in found]), ("id",))
            after = {key_of(row, ["id"]): row for row in table_rows(connection, "t")}
            assert apply_to_keys(before, folded, ["id"]) == after
            unresolved += len(folded) - folded["unchanged"].null_count
            origins += len(folded) - folded["origin"].null_count
    # The histories hold what they are for: values that only the destination has, under this key and under another.
    assert (unresolved > 0, origins > 0) == ((identity in ("default", "index")),) * 2


def test_toasted_key(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id text PRIMARY KEY, n int)")
    connection.execute("ALTER TABLE t ALTER id SET STORAGE EXTERNAL")
    connection.execute("INSERT INTO t VALUES (repeat('k', 2500), 1)")
    with publish(connection) as slot:
        connection.execute("UPDATE t SET n = 2")
        [found] = change_batches(slot.batch(), oid(connection, "t"))
    # Given that the server left the key out of the new row
    assert found.changes["unchanged"].to_pylist() == [[0]]

    [row] = fold_table(pa.Table.from_batches([found.changes]), ("id",)).to_pylist()

    assert (row["op"], row["row"], row["unchanged"]) == ("U", {"id": "k" * 2500, "n": 2}, None)


def test_table_without_a_key(connection: Connection) -> None:
    rng = random.Random(1)
    connection.execute("CREATE TABLE t (n int, tags text[], price numeric(6,2), f float8, doc text)")
    connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    values = "i % 3, CASE WHEN i % 2 = 0 THEN ARRAY['a', NULL, 'b,'] END, 1.5, 'NaN', repeat(md5('x'), 200)"
    connection.execute(f"INSERT INTO t SELECT {values} FROM generate_series(1, 12) i")

    def counted() -> Counter[str]:
        # Through Arrow, as the folded rows are shown.
        return Counter(repr(row) for row in pa.array(table_rows(connection, "t"), row_type).to_pylist())

    with publish(connection) as slot:
        connection.execute("UPDATE t SET n = n WHERE n = 0")
        row_type = change_batches(slot.batch(), oid(connection, "t"))[0].changes.schema.field("row").type
        for _ in range(15):
            before = counted()
            for _ in range(rng.randint(1, 4)):
                one = "ctid IN (SELECT ctid FROM t ORDER BY random() LIMIT 2)"
                connection.execute(
                    rng.choice(
                        [
                            f"INSERT INTO t SELECT {values} FROM generate_series(1, 3) i",
                            f"DELETE FROM t WHERE {one}",
                            f"UPDATE t SET n = (n + 1) % 3 WHERE {one}",
                            f"UPDATE t SET tags = NULL WHERE {one}",
                        ]
                    )
                )
            found = change_batches(slot.batch(), oid(connection, "t"))
            if found:
                folded = fold_table(pa.Table.from_batches([each.changes for each in found]), None)
                assert apply_to_bag(before, folded) == counted()
