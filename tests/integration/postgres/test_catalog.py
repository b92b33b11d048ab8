"""postgres.catalog: a table's schema as the catalog has it."""

from __future__ import annotations

import psycopg
import pytest

from headrace.errors import SourceSchemaError
from headrace.postgres.catalog import table_schema, table_schemas
from headrace.schema import PgType, ReplicaIdentity, TableName

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]


def name(table: str) -> TableName:
    return TableName("public", table)


def test_columns_with_types_typmods_defaults_and_key_positions(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE t (a int NOT NULL, gone text, b numeric(10,2) DEFAULT 1.5, c text, d varchar(7), z bigint,
            g int GENERATED ALWAYS AS (a * 2) STORED, i int GENERATED ALWAYS AS IDENTITY,
            PRIMARY KEY (z, a) INCLUDE (c));
        ALTER TABLE t DROP COLUMN gone;
    """)
    schema = table_schema(connection, name("t"))
    by_name = {column.name: column for column in schema.columns}
    assert [(c.name, c.attnum) for c in schema.columns] == [
        ("a", 1), ("b", 3), ("c", 4), ("d", 5), ("z", 6), ("g", 7), ("i", 8),
    ]  # fmt: skip
    assert [c.name for c in schema.key] == ["z", "a"]
    assert schema.replica_identity is ReplicaIdentity.DEFAULT
    assert schema.identity_attnums == (1, 6)
    assert by_name["b"].type == PgType(1700, "numeric")
    assert (by_name["b"].typmod, by_name["b"].default) == ((10 << 16 | 2) + 4, "1.5")
    assert (by_name["d"].typmod, by_name["d"].nullable, by_name["a"].nullable) == (11, True, False)
    assert (by_name["g"].generated, by_name["g"].default, by_name["i"].generated) == (True, None, False)


def test_types_are_followed_to_elements_and_bases(connection: Connection) -> None:
    connection.execute("""
        CREATE SCHEMA other;
        CREATE TYPE other.mood AS ENUM ('sad', 'ok');
        CREATE DOMAIN price AS numeric(8,3);
        CREATE DOMAIN discounted AS price CHECK (VALUE > 0);
        CREATE DOMAIN tags AS text[];
        CREATE TYPE pair AS (x int, y int);
        CREATE TABLE t (m other.mood, ms other.mood[], p discounted, ps price[], ts tags, q pair, b box[], pt point,
            v int2vector, r int4range, n name);
    """)
    types = {column.name: column.type for column in table_schema(connection, name("t")).columns}
    assert (types["m"].kind, types["m"].schema, types["m"].name) == ("e", "other", "mood")
    assert types["ms"].element == types["m"]
    price = types["ps"].element
    assert price is not None
    assert (price.kind, price.base, price.base_typmod) == ("d", PgType(1700, "numeric"), (8 << 16 | 3) + 4)
    assert (types["p"].kind, types["p"].base) == ("d", price)
    assert types["ts"].base is not None
    assert types["ts"].base.element == PgType(25, "text")
    assert (types["q"].kind, types["r"].kind) == ("c", "r")
    assert types["b"].element is not None
    assert types["b"].element.delimiter == ";"
    # Fixed-length "arrays" and the vectors do not print as arrays.
    assert [types[column].element for column in ("pt", "v", "n")] == [None, None, None]


def test_replica_identities(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE keyed (a int, b int PRIMARY KEY);
        CREATE TABLE keyless (a int, b int);
        CREATE TABLE complete (a int PRIMARY KEY, b int); ALTER TABLE complete REPLICA IDENTITY FULL;
        CREATE TABLE nothing (a int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
        CREATE TABLE indexed (a int PRIMARY KEY, b int NOT NULL, c int NOT NULL);
        CREATE UNIQUE INDEX indexed_cb ON indexed (c, b); ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_cb;
        CREATE TABLE late (a int PRIMARY KEY DEFERRABLE, b int);
    """)
    got = {
        table: (schema.replica_identity.name, schema.identity_attnums, [c.name for c in schema.key])
        for table in ("keyed", "keyless", "complete", "nothing", "indexed", "late")
        for schema in [table_schema(connection, name(table))]
    }
    assert got == {
        "keyed": ("DEFAULT", (2,), ["b"]),
        "keyless": ("DEFAULT", (), []),
        "complete": ("FULL", (1, 2), ["a"]),
        "nothing": ("NOTHING", (), ["a"]),
        "indexed": ("INDEX", (2, 3), ["a"]),
        "late": ("DEFAULT", (), ["a"]),
    }


def test_odd_names(connection: Connection) -> None:
    connection.execute("""CREATE SCHEMA "My ""Schema"; CREATE TABLE "My ""Schema"."Tá.ble" ("Col 1" int)""")
    odd = TableName('My "Schema', "Tá.ble")
    schema = table_schema(connection, odd)
    assert (schema.name, [c.name for c in schema.columns]) == (odd, ["Col 1"])


def test_comments_of_the_table_and_its_columns(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE t (gone int, a int PRIMARY KEY, b text, c text);
        ALTER TABLE t DROP COLUMN gone;
        COMMENT ON TABLE t IS E'Kunde "A" & it''s\\ttabbed\\nüñ 🚰 \\\\';
        COMMENT ON COLUMN t.a IS '{"json": "key"}';
        COMMENT ON COLUMN t.b IS 'Größe 日本語';
        COMMENT ON CONSTRAINT t_pkey ON t IS 'another object';
    """)
    schema = table_schema(connection, name("t"))
    assert schema.comment == 'Kunde "A" & it\'s\ttabbed\nüñ 🚰 \\'
    assert [c.comment for c in schema.columns] == ['{"json": "key"}', "Größe 日本語", None]


def test_a_comment_makes_no_other_schema(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
    before = table_schema(connection, name("t"))
    connection.execute("COMMENT ON TABLE t IS 'x'; COMMENT ON COLUMN t.a IS 'y'")
    after = table_schema(connection, name("t"))
    assert (after.comment, after.columns[0].comment) == ("x", "y")
    assert after == before


def test_many_tables_in_one_query_and_missing_ones_left_out(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        connection.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, v{number} text)")
    connection.execute("CREATE TABLE nothing_in_it ()")
    rows = connection.execute(
        "SELECT oid::int8 FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    )
    ids = [int(str(oid)) for (oid,) in rows.fetchall()]
    executed = []
    execute = connection.execute
    monkeypatch.setattr(connection, "execute", lambda *args, **kw: (executed.append(args), execute(*args, **kw))[1])
    schemas = table_schemas(connection, [*ids, 1])
    assert len([args for args in executed if "pg_attribute" in args[0]]) == 1
    assert schemas.keys() == set(ids)
    assert {s.name.name: len(s.columns) for s in schemas.values()} == {f"t{n}": 2 for n in range(20)} | {
        "nothing_in_it": 0
    }
    assert table_schemas(connection, []) == {}


def test_a_missing_table_is_named(connection: Connection) -> None:
    with pytest.raises(SourceSchemaError, match=r"table public\.nosuch does not exist"):
        table_schema(connection, name("nosuch"))


def test_what_rows_older_than_a_column_show(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE t (a int); INSERT INTO t VALUES (1);
        ALTER TABLE t ADD b int DEFAULT 7, ADD c text DEFAULT 'x, "y"', ADD d int[] DEFAULT '{1,2}', ADD e int,
            ADD f box DEFAULT '(1,1),(0,0)';
        ALTER TABLE t ALTER b SET DEFAULT 8;
    """)
    columns = table_schema(connection, name("t")).columns
    assert [(c.name, c.missing) for c in columns] == [
        ("a", None), ("b", "7"), ("c", 'x, "y"'), ("d", "{1,2}"), ("e", None), ("f", "(1,1),(0,0)"),
    ]  # fmt: skip
    connection.execute("VACUUM FULL t")
    assert [c.missing for c in table_schema(connection, name("t")).columns] == [None] * 6


def test_columns_that_are_gone_and_rows_written_anew_leave_a_trace(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (a int, b int); ALTER TABLE t DROP b")
    before = table_schema(connection, name("t"))
    assert before.natts == 2
    connection.execute("ALTER TABLE t ADD c int DEFAULT 1")
    altered = table_schema(connection, name("t"))
    assert (altered.natts, altered.storage) == (3, before.storage)
    connection.execute("ALTER TABLE t ADD d float8 DEFAULT random()")
    assert table_schema(connection, name("t")).storage not in (0, before.storage)


def test_members_of_enums_and_composites(connection: Connection) -> None:
    connection.execute("""
        CREATE TYPE mood AS ENUM ('sad', 'ok'); ALTER TYPE mood ADD VALUE 'so so' BEFORE 'ok';
        CREATE DOMAIN feeling AS mood; CREATE TYPE pair AS (x numeric(5,1), gone int, m feeling[]);
        ALTER TYPE pair DROP ATTRIBUTE gone; CREATE TABLE other (p pair);
        CREATE TABLE t (m mood[], p pair, o other, i int, r int4range);
    """)
    types = [column.type for column in table_schema(connection, name("t")).columns]
    feelings = types[1].members[1].split(" ")[1]
    pair = (f"x 1700 {(5 << 16 | 1) + 4}", f"m {feelings} -1", "m.sad", "m.so so", "m.ok")
    assert types[0].element is not None
    assert (types[0].members, types[0].element.members) == ((), ("sad", "so so", "ok"))
    assert types[1].members == pair
    assert types[2].members == (f"p {types[1].oid} -1", *(f"p.{member}" for member in pair))
    assert (types[3].members, types[4].members) == ((), ())


def test_leaves_of_a_partitioned_table(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE p (a int) PARTITION BY RANGE (a); CREATE TABLE empty (a int) PARTITION BY RANGE (a);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (a);
        CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
        CREATE TABLE p11 PARTITION OF p1 FOR VALUES FROM (0) TO (5);
        CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (a);
        CREATE TABLE parent (a int); CREATE TABLE child () INHERITS (parent);
    """)
    schemas = {
        table: table_schema(connection, name(table)) for table in ("p", "p1", "p2", "p11", "p3", "empty", "parent")
    }
    first, second = schemas["p2"].id, schemas["p11"].id
    assert {table: schema.leaves for table, schema in schemas.items()} == {
        "p": (first, second), "p1": (second,), "p2": (), "p11": (), "p3": (), "empty": (), "parent": (),
    }  # fmt: skip


def test_defaults_are_qualified_and_the_sessions_settings_stay(connection: Connection) -> None:
    connection.execute("""
        CREATE SCHEMA other; SET search_path = other, public; SET jit = on;
        CREATE TABLE t (id serial, v text DEFAULT lower('X'));
    """)
    expected = ["nextval('other.t_id_seq'::regclass)", "lower('X'::text)"]
    odd = TableName("other", "t")
    assert [c.default for c in table_schema(connection, odd).columns] == expected
    with connection.transaction():
        assert [c.default for c in table_schema(connection, odd).columns] == expected
        assert connection.execute("SHOW search_path").fetchone() == ("other, public",)
        assert connection.execute("SHOW jit").fetchone() == ("on",)
    assert connection.execute("SHOW search_path").fetchone() == ("other, public",)
