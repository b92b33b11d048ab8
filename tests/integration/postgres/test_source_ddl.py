"""postgres.source: every kind of DDL tells of the right tables, as they are then; all else is silent."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from ddl_reading import Listening, Told, listening
from headrace.postgres.catalog import table_schemas
from headrace.postgres.ddl_messages import PublicationMessage
from headrace.postgres.source.install import install
from headrace.postgres.version import ServerVersion
from headrace.schema import ReplicaIdentity, TableName, TableSchema
from headrace.testing import PostgresServer

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def conninfo(postgres: PostgresServer) -> Iterator[str]:
    """One database for all tests here: each has a schema of its own."""
    with postgres.database() as info:
        yield info


@pytest.fixture(scope="module")
def installed(conninfo: str) -> Iterator[Listening]:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        install(connection)
        with listening(connection) as it:
            yield it


@pytest.fixture
def source(installed: Listening) -> Iterator[Listening]:
    connection = installed.connection
    warned: list[str | None] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            warned.append(diagnostic.message_primary)

    connection.add_notice_handler(note)
    connection.execute("CREATE SCHEMA s; SET search_path = s, public")
    yield installed
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        connection.execute("ROLLBACK")
    connection.execute("RESET ALL; DROP SCHEMA IF EXISTS s, s2 CASCADE")
    connection.remove_notice_handler(note)
    assert warned == []


def as_catalog_says(source: Listening, told: Told) -> bool:
    """Whether the catalog, asked in another way and session, says the same of every table told of."""
    with psycopg.connect(source.connection.info.dsn, password=source.connection.info.password) as another:
        now = table_schemas(another, [table.id for table in told.tables])
    return [repr(table) for table in told.tables] == [repr(now[table.id]) for table in told.tables]


def columns(table: TableSchema) -> list[str]:
    return [column.name for column in table.columns]


# Columns


def test_add_column(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    told = source.told("ALTER TABLE t ADD COLUMN v numeric(10,2) NOT NULL DEFAULT 1.50")
    message = told.one()
    assert (message.tag, message.dropped, message.rewrite, message.plain) == ("ALTER TABLE", False, 0, True)
    column = told.table().column("v")
    assert (column.attnum, column.typmod, column.nullable) == (2, (10 << 16 | 2) + 4, False)
    assert (column.default, column.missing) == ("1.50", "1.50")
    assert as_catalog_says(source, told)


def test_drop_column(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int, w int)")
    told = source.told("ALTER TABLE t DROP COLUMN v")
    assert [(c.name, c.attnum) for c in told.table().columns] == [("id", 1), ("w", 3)]


def test_rename_column(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    told = source.told("ALTER TABLE t RENAME COLUMN v TO w")
    assert [(c.name, c.attnum) for c in told.table().columns] == [("id", 1), ("w", 2)]
    assert told.one().tag == "ALTER TABLE"


def test_nullability_and_default(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    assert not source.told("ALTER TABLE t ALTER v SET NOT NULL").table().column("v").nullable
    assert source.told("ALTER TABLE t ALTER v DROP NOT NULL").table().column("v").nullable
    assert source.told("ALTER TABLE t ALTER v SET DEFAULT 7").table().column("v").default == "7"
    assert source.told("ALTER TABLE t ALTER v DROP DEFAULT").table().column("v").default is None


def test_several_changes_in_one_statement_are_one_message(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int, w int)")
    told = source.told("ALTER TABLE t ADD x text, DROP v, ALTER w TYPE bigint, ALTER w SET NOT NULL")
    assert [(c.name, c.type.name, c.nullable) for c in told.table().columns] == [
        ("id", "int4", False), ("w", "int8", False), ("x", "text", True),
    ]  # fmt: skip


def test_the_text_of_a_default_is_the_same_whoever_asks(source: Listening) -> None:
    source.connection.execute("""
        CREATE FUNCTION s.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE TYPE mood AS ENUM ('ok');
        SET datestyle = 'German'; SET timezone = 'Asia/Tokyo'; SET intervalstyle = 'iso_8601';
        SET bytea_output = 'escape'; SET extra_float_digits = 0;
    """)
    told = source.told(
        "CREATE TABLE t (id serial PRIMARY KEY, f int DEFAULT f(), m mood DEFAULT 'ok')",
        "ALTER TABLE t ADD a timestamptz DEFAULT '2020-01-02 03:04:05+00', ADD b interval DEFAULT '1 day 2 hours', "
        "ADD c bytea DEFAULT 'a', ADD d float8 DEFAULT '0.1'::float8 + '0.2'::float8",
    )
    _, table = told.tables
    assert table.column("f").default == "s.f()"
    assert table.column("id").default == "nextval('s.t_id_seq'::regclass)"
    assert table.column("m").default == "'ok'::s.mood"
    assert [table.column(name).missing for name in "abcd"] == [
        "2020-01-02 03:04:05+00", "1 day 02:00:00", "\\x61", "0.30000000000000004",
    ]  # fmt: skip
    source.connection.execute("RESET ALL; SET search_path = s")
    now = table_schemas(source.connection, [table.id])[table.id]
    assert [c.default for c in now.columns] == [c.default for c in table.columns]


def test_what_older_rows_show_of_an_added_column(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int)")
    told = source.told("""
        ALTER TABLE t ADD a int[] DEFAULT '{1,2}', ADD b box DEFAULT '(1,1),(0,0)', ADD c text DEFAULT 'a "b", \\c{} é',
            ADD d text DEFAULT '', ADD e text DEFAULT 'NULL', ADD f text DEFAULT NULL, ADD g text,
            ADD h jsonb DEFAULT '{"a": [1, "x"]}', ADD i text DEFAULT '"',
            ADD j box[] DEFAULT '{(1,1),(0,0);(2,2),(1,1)}'
    """)
    source.connection.execute("INSERT INTO t VALUES (1)")
    names = "abcdefghij"
    printed = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
    shown = source.connection.execute(sql.SQL("SELECT {} FROM t").format(printed)).fetchone()
    assert tuple(told.table().column(name).missing for name in names) == shown
    assert told.one().rewrite == 0
    assert as_catalog_says(source, told)


# Rewrites


@pytest.mark.parametrize(
    ("statement", "rewrite", "plain"),
    [
        ("ALTER TABLE t ADD x float8 DEFAULT random()", 2, True),
        ("ALTER TABLE t ADD x int GENERATED ALWAYS AS (v * 2) STORED", 2, True),
        ("ALTER TABLE t ADD x int DEFAULT 3", 0, True),
        ("ALTER TABLE t ALTER v TYPE bigint", 4, True),
        (" \n alter\n table t alter v type bigint ;  ", 4, True),
        ("ALTER TABLE t ALTER v TYPE bigint USING v * 2", 4, False),
        ("ALTER TABLE t ALTER v TYPE text", 4, True),
        ("ALTER TABLE t ALTER w TYPE varchar(20)", 0, True),
        ("ALTER TABLE t ALTER v TYPE bigint, ADD x float8 DEFAULT random()", 6, True),
        ("ALTER TABLE t ADD x text DEFAULT 'a;b'", 0, False),
        ("/* why */ ALTER TABLE t ALTER v TYPE bigint", 4, False),
        ("ALTER TABLE t ALTER v TYPE bigint; SELECT 1", 4, False),
        ("DO $$ BEGIN ALTER TABLE t ALTER v TYPE bigint; END $$", 4, False),
        ("SELECT altering()", 4, False),
    ],
)
def test_rewrites_and_whether_the_statement_is_plain(
    source: Listening, statement: str, rewrite: int, plain: bool
) -> None:
    source.connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, v int, w varchar(10));
        CREATE FUNCTION altering() RETURNS void LANGUAGE plpgsql AS
            'BEGIN ALTER TABLE t ALTER v TYPE bigint USING v + 1; END';
    """)
    message = source.told(statement).one()
    assert (message.rewrite, message.plain) == (rewrite, plain)
    # Of one command only.
    assert source.told("ALTER TABLE t ADD last int").one().rewrite == 0


@pytest.mark.parametrize("language", ["plpgsql", "sql"])
def test_ddl_that_runs_inside_a_plain_statement_is_not_plain(source: Listening, language: str) -> None:
    body = "ALTER TABLE u ALTER v TYPE bigint USING v * 2"
    text = f"BEGIN {body}; RETURN 1; END" if language == "plpgsql" else f"{body}; SELECT 1"
    source.connection.execute(f"""
        CREATE TABLE t (id int); INSERT INTO t VALUES (1); CREATE TABLE u (v int);
        CREATE FUNCTION sneaky() RETURNS int LANGUAGE {language} VOLATILE AS '{text}';
    """)
    told = source.told("ALTER TABLE t ADD x int DEFAULT sneaky()")
    assert [(m.table and m.table.name.name, m.rewrite, m.plain) for _, m in told.ddl] == [
        ("u", 4, False), ("t", 2, True),
    ]  # fmt: skip


def test_a_rewritten_partition_counts_for_the_partitioned_tables_above_it(source: Listening) -> None:
    source.connection.execute("""
        CREATE TABLE p (id int, v int) PARTITION BY RANGE (id);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
        CREATE TABLE p11 PARTITION OF p1 FOR VALUES FROM (0) TO (5);
        CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
    """)
    told = source.told("ALTER TABLE p ALTER v TYPE text")
    assert {m.table.name.name: m.rewrite for _, m in told.ddl if m.table} == {"p": 4, "p1": 4, "p11": 4, "p2": 4}
    assert as_catalog_says(source, told)


# Tables


def test_rename_table_and_set_schema(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE SCHEMA s2")
    oid = source.oid("t")
    assert (source.told("ALTER TABLE t RENAME TO u").table().name, source.oid("u")) == (TableName("s", "u"), oid)
    assert source.told("ALTER TABLE u SET SCHEMA s2").table().name == TableName("s2", "u")
    # Postgres lets one rename a table so, too.
    assert source.told("ALTER INDEX s2.u RENAME TO v").table().name == TableName("s2", "v")


def test_alter_schema_rename(source: Listening) -> None:
    source.connection.execute("""
        CREATE SCHEMA s2; CREATE TABLE s2.a (id int); CREATE TABLE s2.b (id int); CREATE VIEW s2.c AS SELECT 1;
        CREATE TYPE s2.mood AS ENUM ('ok'); CREATE TABLE elsewhere (m s2.mood); CREATE TABLE untouched (id int);
    """)
    told = source.told("ALTER SCHEMA s2 RENAME TO s3")
    try:
        assert sorted(told.names) == ["s.elsewhere", "s3.a", "s3.b"]
        assert {m.tag for _, m in told.ddl} == {"ALTER SCHEMA"}
        assert {t.columns[0].type.schema for t in told.tables if t.name.name == "elsewhere"} == {"s3"}
    finally:
        source.connection.execute("DROP SCHEMA s3 CASCADE")


@pytest.mark.parametrize(
    ("statement", "tag"),
    [
        ("CREATE TABLE n (id int PRIMARY KEY, v serial, u int UNIQUE REFERENCES t)", "CREATE TABLE"),
        ("CREATE TABLE n AS SELECT 1 AS id", "CREATE TABLE AS"),
        ("SELECT 1 AS id INTO n", "SELECT INTO"),
        ("CREATE TABLE n (LIKE t INCLUDING ALL)", "CREATE TABLE"),
        ("CREATE TABLE n (id int) INHERITS (t)", "CREATE TABLE"),
    ],
)
def test_create_table(source: Listening, statement: str, tag: str) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    told = source.told(statement)
    assert (told.one().tag, told.one().plain, told.table().name.name) == (tag, False, "n")
    assert as_catalog_says(source, told)


def test_create_schema_with_a_table_in_it(source: Listening) -> None:
    told = source.told("CREATE SCHEMA s2 CREATE TABLE n (id int)")
    assert (told.one().tag, told.names) == ("CREATE SCHEMA", ["s2.n"])


def test_create_table_that_exists_is_silent(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    assert source.told("CREATE TABLE IF NOT EXISTS t (id int)").raw == []


def test_drop_table(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int REFERENCES t)")
    oid, other = source.oid("t"), source.oid("u")
    told = source.told("DROP TABLE t, u")
    assert (told.dropped, told.tables) == (sorted([oid, other]), [])
    assert [(m.tag, m.table, m.rewrite, m.plain) for _, m in told.ddl] == [("DROP TABLE", None, 0, False)] * 2


def test_drop_schema_cascade(source: Listening) -> None:
    source.connection.execute("""
        CREATE SCHEMA s2; CREATE TABLE s2.t (id int); CREATE TYPE s2.mood AS ENUM ('ok');
        CREATE TABLE uses (id int, m s2.mood);
    """)
    oid = source.oid("s2.t")
    told = source.told("DROP SCHEMA s2 CASCADE")
    assert (told.dropped, told.names, columns(told.tables[0])) == ([oid], ["s.uses"], ["id"])
    assert as_catalog_says(source, told)


def test_inheriting_tables_are_told_with_their_parent(source: Listening) -> None:
    source.connection.execute("CREATE TABLE a (id int); CREATE TABLE b () INHERITS (a); CREATE TABLE c () INHERITS (b)")
    told = source.told("ALTER TABLE a ADD v int")
    assert (sorted(told.names), {tuple(columns(t)) for t in told.tables}) == (["s.a", "s.b", "s.c"], {("id", "v")})
    assert source.told("ALTER TABLE c ADD w int").names == ["s.c"]


# Keys and identities


def test_add_and_drop_primary_key(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (a int, b int)")
    table = source.told("ALTER TABLE t ADD PRIMARY KEY (b, a)").table()
    assert ([c.name for c in table.key], table.identity_attnums) == (["b", "a"], (1, 2))
    table = source.told("ALTER TABLE t DROP CONSTRAINT t_pkey").table()
    assert (table.key, table.identity_attnums) == ((), ())


def test_replica_identity(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL)")
    assert source.told("CREATE UNIQUE INDEX i ON t (b)").raw == []
    table = source.told("ALTER TABLE t REPLICA IDENTITY USING INDEX i").table()
    assert (table.replica_identity, table.identity_attnums) == (ReplicaIdentity.INDEX, (2,))
    told = source.told("DROP INDEX i")
    assert (told.one().tag, told.table().identity_attnums) == ("DROP INDEX", ())
    assert source.told("ALTER TABLE t REPLICA IDENTITY FULL").table().identity_attnums == (1, 2)
    assert source.told("ALTER TABLE t REPLICA IDENTITY NOTHING").table().identity_attnums == ()
    assert source.told("ALTER TABLE t REPLICA IDENTITY DEFAULT").table().identity_attnums == (1,)


def test_an_index_that_identifies_nothing_is_silent(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL)")
    assert source.told("CREATE UNIQUE INDEX i ON t (b)", "ALTER INDEX i RENAME TO j", "DROP INDEX j").raw == []


# Types


def test_enum_values(source: Listening) -> None:
    source.connection.execute("""
        CREATE TYPE mood AS ENUM ('a', 'c'); CREATE DOMAIN feeling AS mood; CREATE TYPE pair AS (x int, m feeling[]);
        CREATE TABLE direct (id int, m mood); CREATE TABLE arrayed (m mood[]); CREATE TABLE domained (f feeling);
        CREATE TABLE composed (p pair); CREATE TABLE nested (d direct); CREATE TABLE not_at_all (id int, t text);
        CREATE VIEW seen AS SELECT 'a'::mood;
    """)
    users = ["s.arrayed", "s.composed", "s.direct", "s.domained", "s.nested"]
    told = source.told("ALTER TYPE mood ADD VALUE 'b' BEFORE 'c'")
    assert (sorted(told.names), {m.tag for _, m in told.ddl}) == (users, {"ALTER TYPE"})
    by_name = {table.name.name: table.columns[-1].type for table in told.tables}
    assert by_name["direct"].members == ("a", "b", "c")
    assert by_name["arrayed"].element == by_name["direct"]
    assert [member.split(" ")[0] for member in by_name["composed"].members] == ["x", "m", "m.a", "m.b", "m.c"]
    assert by_name["nested"].members[-3:] == ("m.a", "m.b", "m.c")
    told = source.told("ALTER TYPE mood RENAME VALUE 'a' TO 'z'")
    assert sorted(told.names) == users
    assert {t.columns[-1].type.members for t in told.tables if t.name.name == "direct"} == {("z", "b", "c")}
    assert as_catalog_says(source, told)
    assert sorted(source.told("ALTER TYPE mood RENAME TO temper").names) == users


def test_composite_attributes(source: Listening) -> None:
    source.connection.execute("CREATE TYPE pair AS (x int, y text); CREATE TABLE t (p pair[]); CREATE TABLE o OF pair")
    told = source.told("ALTER TYPE pair ADD ATTRIBUTE z numeric(5,1) CASCADE")
    assert sorted(told.names) == ["s.o", "s.t"]
    by_name = {table.name.name: table for table in told.tables}
    element = by_name["t"].columns[0].type.element
    assert element is not None
    assert element.members == ("x 23 -1", "y 25 -1", f"z 1700 {(5 << 16 | 1) + 4}")
    assert columns(by_name["o"]) == ["x", "y", "z"]
    told = source.told("ALTER TYPE pair RENAME ATTRIBUTE y TO w CASCADE")
    assert sorted(told.names) == ["s.o", "s.t"]
    assert as_catalog_says(source, told)


def test_a_table_used_as_a_type(source: Listening) -> None:
    source.connection.execute("CREATE TABLE a (x int); CREATE TABLE b (id int, inner_a a)")
    told = source.told("ALTER TABLE a ADD y text")
    assert sorted(told.names) == ["s.a", "s.b"]
    assert told.tables[1].columns[1].type.members == ("x 23 -1", "y 25 -1")


def test_alter_domain(source: Listening) -> None:
    source.connection.execute("CREATE DOMAIN d AS int; CREATE TABLE t (v d); CREATE TABLE u (v int)")
    told = source.told("ALTER DOMAIN d SET NOT NULL", "ALTER DOMAIN d RENAME TO e")
    assert [m.tag for _, m in told.ddl] == ["ALTER DOMAIN", "ALTER DOMAIN"]
    assert (told.names, told.tables[-1].columns[0].type.name) == (["s.t", "s.t"], "e")


def test_what_a_drop_takes_from_other_tables(source: Listening) -> None:
    source.connection.execute("""
        CREATE TYPE mood AS ENUM ('a'); CREATE TABLE t (id int, m mood); CREATE TYPE pair AS (x int, m mood);
        CREATE TABLE p (v pair); CREATE SEQUENCE q; CREATE TABLE u (id int DEFAULT nextval('q'));
        CREATE TABLE w (id serial); CREATE TABLE v (id int DEFAULT nextval('w_id_seq'));
    """)
    told = source.told("DROP TYPE mood CASCADE")
    assert sorted(told.names) == ["s.p", "s.t"]
    assert {m.tag for _, m in told.ddl} == {"DROP TYPE"}
    assert as_catalog_says(source, told)
    told = source.told("DROP SEQUENCE q CASCADE")
    assert (told.names, told.tables[0].columns[0].default) == (["s.u"], None)
    told = source.told("ALTER TABLE w DROP COLUMN id CASCADE")
    assert sorted(told.names) == ["s.v", "s.w"]
    assert as_catalog_says(source, told)


# Partitions


def test_partitions(source: Listening) -> None:
    source.connection.execute("CREATE TABLE p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    told = source.told("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)")
    assert (told.names, [t.leaves for t in told.tables]) == (["s.p", "s.p1"], [(), ()])
    told = source.told("CREATE TABLE p11 PARTITION OF p1 FOR VALUES FROM (0) TO (5)")
    leaf = source.oid("p11")
    assert (told.names, [t.leaves for t in told.tables]) == (["s.p", "s.p1", "s.p11"], [(leaf,), (leaf,), ()])
    told = source.told(
        "CREATE TABLE p2 (id int NOT NULL, v int)", "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)"
    )
    second = source.oid("p2")
    assert told.names == ["s.p2", "s.p", "s.p1", "s.p11", "s.p2"]
    assert told.tables[1].leaves == (leaf, second)
    assert [c.name for c in told.tables[-1].key] == ["id"]
    told = source.told("ALTER TABLE p DETACH PARTITION p2")
    assert (told.names, told.tables[0].leaves) == (["s.p", "s.p1", "s.p11"], (leaf,))
    told = source.told("ALTER TABLE p11 ALTER v SET DEFAULT 3")
    assert told.names == ["s.p", "s.p1", "s.p11"]
    told = source.told("DROP TABLE p11")
    assert (told.dropped, told.names, [t.leaves for t in told.tables]) == ([leaf], ["s.p", "s.p1"], [(), ()])
    assert as_catalog_says(source, told)


def test_detach_concurrently(source: Listening) -> None:
    source.connection.execute("""
        CREATE TABLE p (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
        CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
    """)
    told = source.told("ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY")
    assert told.names[0] == "s.p"
    assert told.tables[0].leaves == (source.oid("p2"),)


# Publications


def test_publications(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    name = 'odd "näme"'
    quoted = '"odd ""näme"""'
    told = source.told(
        f"CREATE PUBLICATION {quoted} FOR TABLE t",
        f"ALTER PUBLICATION {quoted} ADD TABLE u",
        f"ALTER PUBLICATION {quoted} DROP TABLE t",
        f"ALTER PUBLICATION {quoted} SET TABLE t",
        f"ALTER PUBLICATION {quoted} SET (publish_via_partition_root = true)",
        f"ALTER PUBLICATION {quoted} RENAME TO plain",
        "DROP PUBLICATION plain",
    )
    assert told.ddl == []
    assert told.publications == [
        PublicationMessage("CREATE PUBLICATION", name),
        *[PublicationMessage("ALTER PUBLICATION", name)] * 4,
        PublicationMessage("ALTER PUBLICATION", "plain"),
        PublicationMessage("DROP PUBLICATION", "plain"),
    ]


def test_publications_of_schemas(source: Listening) -> None:
    if not ServerVersion.of(source.connection).tables_in_schema:
        with pytest.raises(psycopg.errors.SyntaxError):
            source.connection.execute("CREATE PUBLICATION q FOR TABLES IN SCHEMA s")
        return
    source.connection.execute("CREATE SCHEMA s2; CREATE TABLE t (id int PRIMARY KEY)")
    told = source.told(
        "CREATE PUBLICATION q FOR TABLES IN SCHEMA s",
        "ALTER PUBLICATION q ADD TABLES IN SCHEMA s2",
        "ALTER PUBLICATION q DROP TABLES IN SCHEMA s2",
        "ALTER PUBLICATION q SET TABLE t (id) WHERE (id > 3)",
        "DROP PUBLICATION q",
    )
    assert (told.ddl, [it.publication for it in told.publications]) == ([], ["q"] * 5)


# What is not told


def test_what_is_rolled_back_is_not_told(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int)")
    assert source.told("BEGIN", "ALTER TABLE t ADD v int", "CREATE TABLE u (id int)", "ROLLBACK").raw == []
    told = source.told(
        "BEGIN", "ALTER TABLE t ADD a int", "SAVEPOINT x", "ALTER TABLE t ADD b int", "CREATE TABLE u ()",
        "ROLLBACK TO x", "ALTER TABLE t ADD c int", "COMMIT",
    )  # fmt: skip
    assert [columns(table) for table in told.tables] == [["id", "a"], ["id", "a", "c"]]


def test_which_savepoint_told_it(source: Listening) -> None:
    """Each message has the id of what emitted it: no two of these are alike, later ones are higher."""
    source.connection.execute("CREATE TABLE t (id int)")
    source.connection.execute("BEGIN")
    begun = source.connection.execute("SELECT pg_current_xact_id()::xid::text::int8").fetchone()
    told = source.told(
        "ALTER TABLE t ADD a int", "SAVEPOINT x", "ALTER TABLE t ADD b int", "SAVEPOINT y", "DROP TABLE t",
        "ROLLBACK TO x", "ALTER TABLE t ADD c int", "COMMIT",
    )  # fmt: skip
    xids = [json.loads(content)["xid"] for content in told.raw]
    assert begun is not None
    assert len(xids) == 2
    assert begun[0] < xids[0] < xids[1]


def test_a_command_that_fails_leaves_nothing_for_the_next(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'x')")
    source.read()
    source.connection.execute("BEGIN; SAVEPOINT x")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        source.connection.execute("ALTER TABLE t ALTER v TYPE int USING v::int")
    source.connection.execute("ROLLBACK TO x; ALTER TABLE t ADD w int; COMMIT")
    told = source.read()
    assert (told.one().rewrite, columns(told.table())) == (0, ["id", "v", "w"])


@pytest.mark.parametrize("value", ["on", "true", "1", "ON"])
def test_a_session_can_ask_for_silence(source: Listening, value: str) -> None:
    source.connection.execute(f"SET headrace.skip_ddl = '{value}'")
    silent = ["CREATE TABLE t (id int, v int)", "ALTER TABLE t ALTER v TYPE text", "ALTER TABLE t DROP v"]
    assert (
        source.told(*silent, "CREATE PUBLICATION z", "DROP PUBLICATION z", "CREATE TABLE u ()", "DROP TABLE u").raw
        == []
    )
    source.connection.execute("SET headrace.skip_ddl = 'off'")
    assert source.told("ALTER TABLE t ADD w int").one().rewrite == 0


def test_temporary_and_unlogged_tables_are_silent(source: Listening) -> None:
    assert source.told(
        "CREATE TEMP TABLE t (id int, v int)", "ALTER TABLE t ADD w float8 DEFAULT random()", "ALTER TABLE t DROP v",
        "DROP TABLE t", "CREATE UNLOGGED TABLE u (id int)", "ALTER TABLE u ADD v int", "DROP TABLE u",
    ).raw == []  # fmt: skip


def test_a_table_that_becomes_logged_is_told(source: Listening) -> None:
    source.connection.execute("CREATE UNLOGGED TABLE u (id int)")
    assert source.told("ALTER TABLE u SET LOGGED").one().rewrite == 1


def test_other_objects_are_silent(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int)")
    assert source.told(
        "CREATE VIEW v AS SELECT id FROM t", "ALTER VIEW v RENAME TO w", "DROP VIEW w",
        "CREATE MATERIALIZED VIEW m AS SELECT 1 AS x", "DROP MATERIALIZED VIEW m", "CREATE SEQUENCE q",
        "ALTER TABLE q OWNER TO postgres", "DROP SEQUENCE q", "COMMENT ON TABLE t IS 'x'",
        "GRANT SELECT ON t TO PUBLIC", "CREATE INDEX i ON t (id)", "DROP INDEX i", "CREATE TYPE e AS ENUM ('a')",
        "ALTER TYPE e ADD VALUE 'b'",
        "DROP TYPE e", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "DROP FUNCTION f()",
        "CREATE ROLE headrace_nobody", "DROP ROLE headrace_nobody", "CREATE STATISTICS st ON id, (id + 1) FROM t",
        "CREATE RULE r AS ON DELETE TO t DO INSTEAD NOTHING", "TRUNCATE t", "CREATE SCHEMA s2", "DROP SCHEMA s2",
    ).raw == []  # fmt: skip


def test_our_own_schema_is_silent(source: Listening) -> None:
    source.connection.execute("CREATE SCHEMA headrace")
    assert (
        source.told("CREATE TABLE headrace.t (id int)", "ALTER TABLE headrace.t ADD v int", "DROP TABLE headrace.t").raw
        == []
    )


@pytest.fixture
def extension(source: Listening) -> Iterator[str]:
    """An extension whose script makes a table, which none of those that come with Postgres does."""
    row = source.connection.execute("SELECT setting FROM pg_config WHERE name = 'SHAREDIR'").fetchone()
    assert row is not None
    name = f"headrace_{secrets.token_hex(4)}"
    control = Path(row[0]) / "extension" / f"{name}.control"
    script = control.with_name(f"{name}--1.sql")
    try:
        control.write_text("default_version = '1'\nrelocatable = true\n")
        script.write_text("CREATE TABLE member (id int); ALTER TABLE member ADD v float8 DEFAULT random();")
        yield name
    finally:
        control.unlink(missing_ok=True)
        script.unlink(missing_ok=True)


def test_what_an_extension_makes_is_silent(source: Listening, extension: str) -> None:
    assert source.told(f"CREATE EXTENSION {extension} SCHEMA s").raw == []
    assert source.told("ALTER TABLE member ADD w int").names == ["s.member"]
    source.connection.execute(f"DROP EXTENSION {extension}")


# Who and how


def test_the_owner_of_a_table_needs_no_grants(source: Listening, conninfo: str) -> None:
    source.connection.execute("""
        CREATE ROLE headrace_owner LOGIN PASSWORD 'x'; GRANT ALL ON SCHEMA s TO headrace_owner;
        CREATE TABLE t (id int, v int); ALTER TABLE t OWNER TO headrace_owner;
    """)
    source.read()
    try:
        with psycopg.connect(conninfo, user="headrace_owner", password="x", autocommit=True) as owner:
            notices: list[str | None] = []
            owner.add_notice_handler(lambda it: notices.append(it.message_primary))
            owner.execute("ALTER TABLE s.t ALTER v TYPE text, DROP id; CREATE TABLE s.u (id int); DROP TABLE s.u")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                owner.execute("SELECT headrace_ddl.describe(ARRAY[]::oid[])")
        told = source.read()
        assert ([m.tag for _, m in told.ddl], notices) == (["ALTER TABLE", "CREATE TABLE", "DROP TABLE"], [])
    finally:
        source.connection.execute("DROP OWNED BY headrace_owner; DROP ROLE headrace_owner")


def test_sessions_that_restore_a_dump_are_heard(source: Listening) -> None:
    source.connection.execute("SET session_replication_role = replica")
    assert source.told("CREATE TABLE t (id int)").names == ["s.t"]


def test_names_of_all_kinds(source: Listening) -> None:
    name = 'Tá.ble "x" ; \\ select 日本 🚰'
    statement = sql.SQL("CREATE TABLE s.{} ({} int, {} text DEFAULT {})").format(
        sql.Identifier(name), sql.Identifier('Größe "1"'), sql.Identifier("select"), sql.Literal("\\ü\n'\"")
    )
    told = source.told(statement.as_string(source.connection))
    assert told.table().name == TableName("s", name)
    assert columns(told.table()) == ['Größe "1"', "select"]
    assert as_catalog_says(source, told)


def test_a_table_of_1600_columns(source: Listening) -> None:
    source.connection.execute(f"CREATE TABLE t ({', '.join(f'column_number_{i} numeric(9,2)' for i in range(1599))})")
    told = source.told("ALTER TABLE t ADD last text DEFAULT 'x'")
    assert len(told.table().columns) == 1600
    assert told.table().columns[-1].missing == "x"


def test_the_statement_is_never_told(source: Listening) -> None:
    source.connection.execute("CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'x')")
    told = source.told("ALTER TABLE t ALTER v TYPE text USING 'my secret'", "CREATE TABLE u AS SELECT 'my secret' AS x")
    assert len(told.raw) == 2
    assert all(b"secret" not in content for content in told.raw)


def test_identity_columns_are_told(source: Listening) -> None:
    ways = {"a": "ALWAYS AS IDENTITY", "d": "BY DEFAULT AS IDENTITY", "": "ALWAYS AS (1) STORED"}
    for way, generated in ways.items():
        told = source.told(f'CREATE TABLE "t{way}" (id int, n int GENERATED {generated})')
        columns = json.loads(told.raw[-1])["catalog"]["columns"]
        assert [column["identity"] for column in columns] == ["", way]


def test_what_a_message_looks_like(source: Listening) -> None:
    told = source.told("CREATE TABLE t (id int PRIMARY KEY)")
    oid = source.oid("t")
    message = json.loads(told.raw[0])
    assert message["catalog"]["tables"][0].pop("storage") > 0
    assert message.pop("xid") > 3
    assert message.pop("transaction") > 3
    assert len(bytes.fromhex(message.pop("mac"))) == 32
    row = source.connection.execute("SELECT oid::int8 FROM pg_database WHERE datname = current_database()").fetchone()
    assert (message.pop("database"),) == row
    assert message == {
        "version": 1, "tag": "CREATE TABLE", "rewrite": 0, "plain": False,
        "locked": True,
        "catalog": {
            "tables": [{
                "oid": oid, "name": "t", "schema": "s", "identity": "d", "comment": None, "natts": 1, "leaves": None,
            }],
            "columns": [{
                "table": oid, "attnum": 1, "name": "id", "type": 23, "typmod": -1, "nullable": False, "default": None,
                "generated": False, "identity": "", "comment": None, "missing": None,
            }],
            "indexes": [{"table": oid, "primary": True, "identity": False, "immediate": True, "attnums": [1]}],
            "types": [{
                "oid": 23, "name": "int4", "schema": "pg_catalog", "kind": "b", "delimiter": ",", "base": None,
                "element": None, "typmod": -1, "members": None,
            }],
        },
    }  # fmt: skip


def test_a_trigger_that_fails_warns_and_lets_the_ddl_through(source: Listening, conninfo: str) -> None:
    warnings: list[str | None] = []
    source.read()
    with psycopg.connect(conninfo, autocommit=True) as other:
        other.add_notice_handler(lambda it: warnings.append(it.message_primary))
        other.execute("ALTER FUNCTION headrace_ddl.emit RENAME TO emit_no_more")
        other.execute("CREATE TABLE s.t (id int)")
        other.execute("ALTER FUNCTION headrace_ddl.emit_no_more RENAME TO emit")
        told = source.read()
        other.execute("ALTER TABLE s.t ADD v int")
    assert (told.raw, len(warnings)) == ([], 1)
    assert "headrace cannot tell of this CREATE TABLE" in str(warnings[0])
    assert source.read().names == ["s.t"]


@pytest.mark.parametrize("value", ["no json", '{"relations": "x"}', "0" * 64 + "{}"])
def test_what_a_session_sets_itself_is_ignored(source: Listening, value: str) -> None:
    source.read()
    source.connection.execute("SELECT set_config('headrace.pending', %s, false)", (value,))
    source.connection.execute("CREATE TABLE s.t (id int)")
    assert source.read().names == ["s.t"]


def test_no_lock_is_waited_for_that_the_ddl_has_not_got(source: Listening, conninfo: str) -> None:
    source.connection.execute("""
        CREATE TYPE mood AS ENUM ('a'); CREATE TABLE p (id int, m mood DEFAULT 'a') PARTITION BY RANGE (id);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
        CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); SET lock_timeout = '2s';
    """)
    with psycopg.connect(conninfo) as other:
        other.execute("LOCK TABLE ONLY s.p, s.p2 IN ACCESS EXCLUSIVE MODE")
        assert source.told("ALTER TABLE p1 ALTER m SET NOT NULL").names == ["s.p", "s.p1"]
        assert source.told("ALTER TYPE mood ADD VALUE 'b'").names == ["s.p", "s.p1", "s.p2"]
