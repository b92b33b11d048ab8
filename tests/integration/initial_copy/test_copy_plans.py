"""Whole tables by both plans, against what psycopg reads."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from copying import copied, published, rows_of, selected
from headrace.errors import SourceSchemaError
from headrace.initial_copy.key_ranges import plan_key_ranges
from headrace.initial_copy.plan import plan_copy
from headrace.initial_copy.ranges import CopyOptions, CtidBounds, KeyBounds
from headrace.initial_copy.reader import copy_columns, read_range
from headrace.postgres.connection import parse_conninfo
from headrace.postgres.snapshots import export_snapshot
from headrace.testing import PostgresServer
from load import SCHEMA, running

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[Any]
SMALL = CopyOptions(rows_per_range=1000, bytes_per_range=64 << 10)
BY_KEY = CopyOptions(rows_per_range=1000, bytes_per_range=64 << 10, key_ranges_over_bytes=0)
INFINITE = "CASE n WHEN 1 THEN '-infinity' WHEN 2 THEN 'infinity'"
KEYS = {
    "int2": "(n % 60000 - 30000)::int2",
    "int4": "n * 1000 - 5000000",
    "int8": "n::int8 * 1000000007",
    "uuid": "md5(n::text)::uuid",
    "timestamp": f"{INFINITE} ELSE '0044-03-15 BC'::timestamp + n * '1 h'::interval END",
    "timestamptz": f"{INFINITE} ELSE '2024-03-31 00:59+00'::timestamptz + n * '1 s'::interval END",
}


@pytest.mark.parametrize("type", KEYS)
def test_both_plans_give_the_tables_rows(conninfo: str, connection: Connection, type: str) -> None:
    connection.execute(f"CREATE TABLE t (k {type} PRIMARY KEY, n int, note text)")
    connection.execute(f"INSERT INTO t SELECT {KEYS[type]}, n, repeat('é', n % 50) FROM generate_series(1, 10000) n")
    schema = published(connection, "t")
    by_ctid, by_key = plan_copy(connection, schema, SMALL), plan_copy(connection, schema, BY_KEY)
    assert (by_ctid.one_snapshot, by_key.one_snapshot) == (True, False)
    assert len(by_ctid.ranges) >= 10
    assert len(by_key.ranges) >= 10
    # Keys that no Arrow value holds are set aside; the other columns tell the rows apart.
    expected = sorted(connection.execute("SELECT n, note FROM t").fetchall())
    assert sorted(row[1:] for row in copied(conninfo, by_ctid)) == expected
    assert sorted(row[1:] for row in copied(conninfo, by_key)) == expected
    assert copied(conninfo, by_ctid) == copied(conninfo, by_key)


@pytest.mark.parametrize("options", [SMALL, BY_KEY], ids=["ctid", "key"])
@pytest.mark.parametrize("analyzed", [True, False])
def test_gaps_and_skew_leave_no_range_much_larger(
    conninfo: str, connection: Connection, options: CopyOptions, analyzed: bool
) -> None:
    connection.execute("CREATE TABLE t (a int8, b int, PRIMARY KEY (a, b))")
    connection.execute("INSERT INTO t SELECT (n / 10)::int8 ^ 3, n FROM generate_series(1, 30000) n")
    if analyzed:
        connection.execute("ANALYZE t")
    plan = plan_copy(connection, published(connection, "t"), options)
    assert all((part.estimated_rows is not None) is analyzed for part in plan.ranges)
    config, columns = parse_conninfo(conninfo), copy_columns(plan.schema)
    sizes = [sum(batch.rows.num_rows for batch in read_range(config, part, columns)) for part in plan.ranges]
    assert sum(sizes) == 30_000
    assert max(sizes) < 3 * 30_000 / len(sizes)
    assert len(sizes) >= 15


def test_a_key_of_few_values_still_covers_everything(conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE TABLE t (a int, b int, PRIMARY KEY (a, b))")
    connection.execute("INSERT INTO t SELECT n % 3, n FROM generate_series(1, 10000) n")
    plan = plan_copy(connection, published(connection, "t"), BY_KEY)
    assert 1 < len(plan.ranges) <= 4
    assert copied(conninfo, plan) == selected(connection, "SELECT * FROM t")


def test_ctid_ranges_of_a_table_that_shrank_and_grew(conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    connection.execute("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 5000) n")
    plan = plan_copy(connection, published(connection, "t"), SMALL)
    connection.execute("INSERT INTO t SELECT n, 'late' FROM generate_series(5001, 30000) n")
    connection.execute("DELETE FROM t WHERE id % 3 = 0")
    assert copied(conninfo, plan) == selected(connection, "SELECT * FROM t")


def test_column_lists_and_row_filters(conninfo: str, connection: Connection, postgres: PostgresServer) -> None:
    connection.execute('CREATE TABLE t (secret text, id int PRIMARY KEY, "Mixed Case" int, "a""b" text)')
    connection.execute("INSERT INTO t SELECT 's', n, n % 7, 'v$1{}%s' || n FROM generate_series(1, 5000) n")
    if postgres.version < 15:
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("CREATE PUBLICATION copied FOR TABLE t (id)")
        return
    listed = """FOR TABLE t (id, "a""b") WHERE (id % 2 = 0 OR id < 10)"""
    schema = published(connection, "t", listed)
    expected = selected(connection, 'SELECT id, "a""b" FROM t WHERE id % 2 = 0 OR id < 10')
    assert len(expected) == 2505
    for options in (SMALL, BY_KEY):
        assert copied(conninfo, plan_copy(connection, schema, options)) == expected
    only_inserts = """FOR TABLE t ("Mixed Case") WHERE ("Mixed Case" IS DISTINCT FROM 3 AND "a""b" <> '$1')"""
    schema = published(connection, "t", only_inserts + " WITH (publish = 'insert')")
    assert plan_key_ranges(connection, schema, BY_KEY) is None
    expected = selected(connection, 'SELECT "Mixed Case" FROM t WHERE "Mixed Case" <> 3')
    assert copied(conninfo, plan_copy(connection, schema, BY_KEY)) == expected


PARTITIONS = """
CREATE TABLE "Root" (id int8, region text, pad text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE eu PARTITION OF "Root" FOR VALUES IN ('eu') PARTITION BY RANGE (id);
CREATE TABLE eu_low PARTITION OF eu FOR VALUES FROM (MINVALUE) TO (5000);
CREATE SCHEMA "Other";
CREATE TABLE "Other"."EU high" (pad text, dropped int, region text NOT NULL, id int8 NOT NULL);
ALTER TABLE "Other"."EU high" DROP COLUMN dropped;
ALTER TABLE eu ATTACH PARTITION "Other"."EU high" FOR VALUES FROM (5000) TO (MAXVALUE);
CREATE TABLE rest PARTITION OF "Root" DEFAULT;
CREATE TABLE hollow PARTITION OF "Root" FOR VALUES IN ('none') PARTITION BY HASH (id);
INSERT INTO "Root" SELECT n, (ARRAY['eu', 'us'])[1 + n % 2], repeat('x', n % 90) FROM generate_series(1, 10000) n;
"""


@pytest.mark.parametrize("options", [SMALL, BY_KEY], ids=["ctid", "key"])
def test_nested_partitions(conninfo: str, connection: Connection, options: CopyOptions) -> None:
    connection.execute(PARTITIONS)
    schema = published(connection, "Root", 'FOR TABLE "Root" WITH (publish_via_partition_root = true)')
    plan = plan_copy(connection, schema, options)
    relations = {str(part.relation) for part in plan.ranges}
    assert relations == ({"public.Root"} if options is BY_KEY else {"public.eu_low", "Other.EU high", "public.rest"})
    assert len(plan.ranges) >= 10
    assert copied(conninfo, plan) == selected(connection, 'SELECT id, region, pad FROM "Root"')


def test_a_leaf_published_by_itself(conninfo: str, connection: Connection) -> None:
    connection.execute(PARTITIONS)
    for options in (SMALL, BY_KEY):
        plan = plan_copy(connection, published(connection, "EU high"), options)
        assert {str(part.relation) for part in plan.ranges} == {"Other.EU high"}
        assert copied(conninfo, plan) == selected(connection, 'SELECT pad, region, id FROM "Other"."EU high"')


def test_children_by_inheritance_are_tables_of_their_own(conninfo: str, connection: Connection) -> None:
    connection.execute(
        "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)"
    )
    connection.execute("INSERT INTO parent VALUES (1), (2); INSERT INTO child VALUES (3)")
    for options in (SMALL, BY_KEY):
        assert copied(conninfo, plan_copy(connection, published(connection, "parent"), options)) == [(1,), (2,)]


def test_a_foreign_partition_is_read_whole(conninfo: str, connection: Connection, postgres: PostgresServer) -> None:
    rows = postgres.data / f"{connection.info.dbname}.csv"
    rows.write_text("11,x\n12,\n")
    rows.chmod(0o644)
    connection.execute(
        f"""CREATE EXTENSION file_fdw;
            CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
            CREATE TABLE t (id int, v text) PARTITION BY RANGE (id);
            CREATE TABLE near PARTITION OF t FOR VALUES FROM (0) TO (10);
            CREATE FOREIGN TABLE away PARTITION OF t FOR VALUES FROM (10) TO (20) SERVER files
            OPTIONS (filename '{rows}', format 'csv');
            INSERT INTO t VALUES (1, 'y')"""
    )
    schema = published(connection, "t", "FOR TABLE t WITH (publish_via_partition_root = true)")
    plan = plan_copy(connection, schema, SMALL)
    assert {part.relation.name: part.bounds for part in plan.ranges} == {"near": None, "away": None}
    assert copied(conninfo, plan) == [(1, "y"), (11, "x"), (12, None)]
    assert plan_key_ranges(connection, schema, BY_KEY) is None


@pytest.mark.parametrize("options", [SMALL, BY_KEY], ids=["ctid", "key"])
def test_empty_tables_and_tables_without_partitions(
    conninfo: str, connection: Connection, options: CopyOptions
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    connection.execute("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    root = "FOR TABLE p WITH (publish_via_partition_root = true)"
    for schema in (published(connection, "t"), published(connection, "p", root)):
        plan = plan_copy(connection, schema, options)
        assert len(plan.ranges) == 1
        batches = [*read_range(parse_conninfo(conninfo), plan.ranges[0], copy_columns(schema))]
        assert [(batch.rows.num_rows, batch.rows.schema.names) for batch in batches] == [(0, ["id", "v"])]
        assert batches[0].snapshot is not None


def test_toasted_values(conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, big text, raw bytea)")
    connection.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    connection.execute(
        r"""INSERT INTO t SELECT n, repeat(E'line "quoted", \n' || n, n * 700),
            decode(repeat(md5(n::text), 3000), 'hex') FROM generate_series(1, 60) n"""
    )
    plan = plan_copy(connection, published(connection, "t"), CopyOptions(bytes_per_range=1 << 20))
    assert len(plan.ranges) > 1
    expected = selected(connection, "SELECT * FROM t")
    assert copied(conninfo, plan, batch_bytes=10_000) == expected
    assert copied(conninfo, plan) == expected


def test_ctid_ranges_under_writers_are_the_snapshots_contents(conninfo: str, connection: Connection) -> None:
    connection.execute(SCHEMA)
    connection.execute("INSERT INTO items SELECT -n, -1, repeat('p', 90) FROM generate_series(1, 20000) n")
    schema = published(connection, "items")
    config, columns = parse_conninfo(conninfo), copy_columns(schema)
    with running(conninfo, seed=3) as writers:
        while sum(writer.transactions for writer in writers) < 40:
            connection.execute("SELECT pg_sleep(0.01)")
        with export_snapshot(config) as held:
            plan = plan_copy(held.connection, schema, SMALL)
            connection.execute("UPDATE items SET note = 'moved' WHERE owner = -1 AND id % 3 = 0")
            got = rows_of(
                batch for part in plan.ranges for batch in read_range(config, part, columns, snapshot_name=held.name)
            )
            expected = selected(held.connection, "SELECT * FROM public.items")
        assert len(plan.ranges) > 20
        assert got == expected
        assert got != selected(connection, "SELECT * FROM items")


def test_a_planned_table_cannot_be_rewritten_while_the_snapshot_is_held(conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)")
    schema = published(connection, "t")
    connection.execute("SET lock_timeout = '50ms'")
    with export_snapshot(parse_conninfo(conninfo)) as held:
        plan_copy(held.connection, schema, SMALL)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute("VACUUM FULL t")
        connection.execute("INSERT INTO t VALUES (0)")
    connection.execute("VACUUM FULL t")


def test_bounds_are_of_the_plans_kind_and_a_missing_key_falls_back(connection: Connection) -> None:
    connection.execute("CREATE TABLE keyed (id uuid PRIMARY KEY, v int); CREATE TABLE keyless (id int8, v int)")
    connection.execute("CREATE DOMAIN ident AS int8; CREATE TABLE domained (id ident PRIMARY KEY, v int)")
    for table in ("keyless", "domained"):
        connection.execute(f"INSERT INTO {table} SELECT n, n FROM generate_series(1, 5000) n")
    connection.execute("INSERT INTO keyed SELECT gen_random_uuid(), n FROM generate_series(1, 5000) n")
    kinds = {
        table: {type(part.bounds) for part in plan_copy(connection, published(connection, table), BY_KEY).ranges}
        for table in ("keyed", "keyless", "domained")
    }
    assert kinds == {"keyed": {KeyBounds}, "keyless": {CtidBounds}, "domained": {KeyBounds}}


def test_a_table_without_columns_to_send_is_an_error(connection: Connection) -> None:
    connection.execute("CREATE TABLE t ()")
    with pytest.raises(SourceSchemaError, match=r"public\.t"):
        plan_copy(connection, published(connection, "t"), SMALL)
