"""What other roles of the source can put into its schemas must not run with the rights of Headrace's role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from copying import batches_of, published, rows_of
from headrace.initial_copy.key_ranges import plan_key_ranges
from headrace.initial_copy.plan import plan_copy
from headrace.initial_copy.ranges import CopyOptions
from headrace.lsn import Lsn
from headrace.postgres.connection import connect, connect_replication, parse_conninfo
from headrace.postgres.publications import read_publication
from headrace.postgres.slots import create_slot, drop_slot, slot_state
from headrace.stores import PostgresStore
from headrace.stores.records import APPLY
from headrace.testing import PostgresServer
from receiving import Source
from recvlogical import current_lsn, transactions_in_spool

Connection = psycopg.Connection[Any]
Opener = Callable[[str], Connection]

# What runs with the rights of whoever calls it.
_SEIZE = "ALTER ROLE {role} SUPERUSER"


class Hostile:
    """A database in which an unprivileged role may create in `public`."""

    def __init__(self, conninfo: str, admin: Connection, role: str) -> None:
        self.conninfo, self.admin, self.role = conninfo, admin, role

    def makes(self, signature: str, returns: str) -> None:
        """The unprivileged role creates a function that makes it a superuser if it is called by one."""
        value = "" if returns.startswith("SETOF") else "NULL"
        body = f"BEGIN {_SEIZE.format(role=self.role)}; RETURN {value}; END"
        with psycopg.connect(self.conninfo, user=self.role, password="x", autocommit=True) as session:
            session.execute(f"CREATE FUNCTION public.{signature} RETURNS {returns} LANGUAGE plpgsql AS $${body}$$")

    @property
    def has_won(self) -> bool:
        row = self.admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", (self.role,)).fetchone()
        assert row is not None
        return bool(row[0])


@pytest.fixture(params=[14, 17])
def hostile(servers: Callable[[int], PostgresServer], request: pytest.FixtureRequest) -> Iterator[Hostile]:
    with servers(request.param).database() as conninfo, psycopg.connect(conninfo, autocommit=True) as admin:
        role = f"eve_{admin.info.dbname}"
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT CREATE ON SCHEMA public TO PUBLIC")
        try:
            yield Hostile(conninfo, admin, role)
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def plain(conninfo: str) -> Connection:
    """A session with the server's own search_path: calls must be safe by themselves."""
    return psycopg.connect(conninfo, autocommit=True)


def pinned(conninfo: str) -> Connection:
    return connect(parse_conninfo(conninfo), "test")


@pytest.mark.parametrize("opened", [plain, pinned])
def test_a_polymorphic_function_of_another_role_is_not_called_for_slots_and_publications(
    hostile: Hostile, opened: Opener
) -> None:
    hostile.makes("to_jsonb(pg_catalog.pg_replication_slots)", "jsonb")
    hostile.makes("to_jsonb(pg_catalog.pg_publication)", "jsonb")
    hostile.admin.execute("CREATE PUBLICATION p")
    slot = f"hostile_{hostile.admin.info.dbname}"
    with opened(hostile.conninfo) as session:
        create_slot(session, slot)
        try:
            state = slot_state(session, slot)
            publication = read_publication(session, "p")
        finally:
            drop_slot(hostile.admin, slot)
    assert state is not None
    assert (state.name, publication.name) == (slot, "p")
    assert not hostile.has_won


@pytest.mark.parametrize("opened", [plain, pinned])
def test_a_polymorphic_function_of_another_role_is_not_called_for_key_ranges(hostile: Hostile, opened: Opener) -> None:
    hostile.makes("unnest(bigint[])", "SETOF bigint")
    hostile.admin.execute("CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)")
    hostile.admin.execute("ANALYZE t")
    schema = published(hostile.admin, "t")
    with opened(hostile.conninfo) as session:
        plan = plan_key_ranges(session, schema, CopyOptions(rows_per_range=250))
    assert plan is not None
    assert len(plan.ranges) == 4
    assert not hostile.has_won


def test_a_store_calls_no_function_of_another_role(hostile: Hostile) -> None:
    # The arguments have the types that psycopg gives small numbers: better matches than those of pg_catalog.
    for kind in ("smallint", "integer"):
        hostile.makes(f"hashint8({kind})", "integer")
    hostile.makes("pg_advisory_xact_lock(integer)", "integer")
    store = PostgresStore(hostile.conninfo, 1)
    try:
        store.update_progress(APPLY, Lsn(7))
        assert store.get_progress(APPLY) == Lsn(7)
    finally:
        store.close()
    assert not hostile.has_won


def test_every_session_has_the_same_search_path(conninfo: str) -> None:
    config = parse_conninfo(conninfo).model_copy(update={"parameters": {"options": "-c search_path=public"}})
    with connect(config, "test") as session, connect_replication(config, "test") as walsender:
        assert session.execute("SHOW search_path").fetchone() == ("pg_catalog,pg_temp",)
        assert walsender.execute(b"SHOW search_path").fetchone() == ("pg_catalog,pg_temp",)


def test_names_of_objects_are_printed_alike_by_copy_and_stream(
    conninfo: str, connection: Connection, tmp_path: Path
) -> None:
    """The text of regclass and its like depends on the search_path: what is in `public` is named with its schema."""
    source = Source(conninfo, connection, tmp_path)
    connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    connection.execute("CREATE FUNCTION own() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    connection.execute("CREATE TABLE named (id int PRIMARY KEY, c regclass, y regtype, f regproc, m mood)")
    connection.execute("ALTER PUBLICATION p ADD TABLE named")
    connection.execute("INSERT INTO named VALUES (1, 't', 'mood', 'own', 'ok')")
    plan = plan_copy(connection, published(connection, "named"))
    copied = rows_of(batch for part in plan.ranges for batch in batches_of(conninfo, part, plan))
    with source.receiving() as running:
        end = current_lsn(connection)
        running.wait(lambda status: status.spooled >= end)
    transactions = transactions_in_spool(source.spool()).values()
    (inserted,) = (message for messages in transactions for message in messages if message[:1] == b"I")
    assert copied == [(1, "public.t", "public.mood", "public.own", "ok")]
    for text in copied[0][1:]:
        assert len(text).to_bytes(4, "big") + text.encode() in inserted
