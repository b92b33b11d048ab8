"""postgres.publications: what a publication sends, in every form Postgres has for saying so."""

from __future__ import annotations

import psycopg
import pytest

from headrace.errors import PublicationNotFound
from headrace.postgres.publications import publication_exists, published_tables, read_publication
from headrace.postgres.version import ServerVersion
from headrace.stores import PostgresStore

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]


def tables(connection: Connection, publication: str = "p") -> dict[str, list[str]]:
    """All tables by name, with their columns; each is the same when it is read alone."""
    published = published_tables(connection, publication)
    for table in published:
        assert published_tables(connection, publication, table.table.id) == (table,)
    return {str(t.table.name): [c.name for c in t.columns] for t in published}


def test_settings_and_tables(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE b (id int PRIMARY KEY, v text); CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE other (id int);
        CREATE PUBLICATION p FOR TABLE b, a WITH (publish = 'insert, delete');
    """)
    publication = read_publication(connection, "p")
    assert publication.actions == {"insert", "delete"}
    assert (publication.all_tables, publication.schemas, publication.via_partition_root) == (False, (), False)
    assert not publication.generated_columns
    assert tables(connection) == {"public.a": ["id"], "public.b": ["id", "v"]}


def test_missing_and_empty(connection: Connection) -> None:
    connection.execute('CREATE PUBLICATION "em""pty"')
    assert publication_exists(connection, 'em"pty')
    assert not publication_exists(connection, "nosuch")
    assert published_tables(connection, 'em"pty') == ()
    for read in (read_publication, published_tables):
        with pytest.raises(PublicationNotFound, match='"nosuch" does not exist') as caught:
            read(connection, "nosuch")
        assert 'CREATE PUBLICATION "nosuch"' in caught.value.hint


def test_all_tables_are_those_with_wal(connection: Connection) -> None:
    connection.execute("""
        CREATE TABLE a (id int); CREATE UNLOGGED TABLE u (id int); CREATE TEMPORARY TABLE t (id int);
        CREATE VIEW v AS SELECT 1; CREATE PUBLICATION p FOR ALL TABLES;
    """)
    assert tables(connection) == {"public.a": ["id"]}
    assert read_publication(connection, "p").all_tables


def test_our_own_schema_is_left_out(connection: Connection, conninfo: str) -> None:
    PostgresStore(conninfo, 1).close()
    connection.execute("CREATE TABLE a (id int); CREATE TABLE headrace (id int); CREATE PUBLICATION p FOR ALL TABLES")
    assert tables(connection) == {"public.a": ["id"], "public.headrace": ["id"]}
    if ServerVersion.of(connection).tables_in_schema:
        connection.execute("CREATE PUBLICATION ours FOR TABLES IN SCHEMA headrace, public")
        assert tables(connection, "ours") == tables(connection)
        assert read_publication(connection, "ours").schemas == ("public",)
    connection.execute("CREATE PUBLICATION only_ours FOR TABLE headrace.progress")
    assert published_tables(connection, "only_ours") == ()


@pytest.mark.parametrize(("via_root", "expected"), [(True, ["public.m"]), (False, ["public.m1", "public.m2a"])])
def test_partitions(connection: Connection, via_root: bool, expected: list[str]) -> None:
    connection.execute(f"""
        CREATE TABLE m (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
        CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (10);
        CREATE TABLE m2 PARTITION OF m FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
        CREATE TABLE m2a PARTITION OF m2 FOR VALUES FROM (10) TO (20);
        CREATE PUBLICATION p FOR TABLE m WITH (publish_via_partition_root = {via_root});
    """)
    got = published_tables(connection, "p")
    assert [str(t.table.name) for t in got] == expected
    assert [[c.name for c in t.identity] for t in got] == [["id"]] * len(expected)
    assert read_publication(connection, "p").via_partition_root is via_root


def test_column_list_and_row_filter(connection: Connection) -> None:
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, secret text, v text, late int); CREATE TABLE plain (id int)"
    )
    if not ServerVersion.of(connection).column_lists:
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("CREATE PUBLICATION p FOR TABLE t (v, id) WHERE (id > 5)")
        return
    connection.execute("CREATE PUBLICATION p FOR TABLE t (v, id) WHERE (id > 5), plain")
    plain, filtered = published_tables(connection, "p")
    assert [c.name for c in filtered.columns] == ["id", "v"]
    assert filtered.mask.attnums == {1, 3}
    assert filtered.row_filter == "(id > 5)"
    assert plain.row_filter is None
    connection.execute("ALTER TABLE t RENAME COLUMN v TO w")
    assert tables(connection)["public.t"] == ["id", "w"]


def test_schema_publications(connection: Connection) -> None:
    connection.execute('CREATE SCHEMA "S 1"; CREATE TABLE "S 1".a (id int); CREATE TABLE outside (id int)')
    if not ServerVersion.of(connection).tables_in_schema:
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute('CREATE PUBLICATION p FOR TABLES IN SCHEMA "S 1"')
        return
    connection.execute('CREATE PUBLICATION p FOR TABLES IN SCHEMA "S 1"')
    assert tables(connection) == {"S 1.a": ["id"]}
    assert read_publication(connection, "p").schemas == ("S 1",)


def test_generated_columns_are_sent_only_where_asked_for(connection: Connection) -> None:
    can = ServerVersion.of(connection).publish_generated_columns
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED)")
    connection.execute("CREATE PUBLICATION p FOR TABLE t")
    assert tables(connection) == {"public.t": ["id"]}
    if can:
        connection.execute("ALTER TABLE t ADD COLUMN w int GENERATED ALWAYS AS (id * 3) VIRTUAL")
        connection.execute("ALTER PUBLICATION p SET (publish_generated_columns = stored)")
        assert tables(connection) == {"public.t": ["id", "g"]}
    assert read_publication(connection, "p").generated_columns is can


def test_one_table_is_read_while_another_is_locked(connection: Connection, conninfo: str) -> None:
    connection.execute("CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE PUBLICATION p FOR TABLE a, b")
    a, _ = published_tables(connection, "p")
    with psycopg.connect(conninfo) as other:
        other.execute("LOCK TABLE b IN ACCESS EXCLUSIVE MODE")
        connection.execute("SET lock_timeout = '1s'")
        assert published_tables(connection, "p", a.table.id) == (a,)
    assert published_tables(connection, "p", 1) == ()
