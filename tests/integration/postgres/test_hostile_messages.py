"""Messages about DDL that other roles forge, damage or send again are not taken for those of the event triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from ddl_reading import listening
from headrace.lsn import Lsn
from headrace.pgoutput.columnar import Emitted
from headrace.pgoutput.decoder import decode
from headrace.pgoutput.messages import Begin, LogicalMessage
from headrace.postgres.connection import parse_conninfo
from headrace.postgres.ddl_messages import parse_ddl
from headrace.postgres.preflight import Severity, Target, run_checks
from headrace.postgres.preflight.schema_changes import schema_changes
from headrace.postgres.source.install import install, installed_version
from headrace.postgres.source.message_key import MessageKey, MessageVerifier, is_authentic, read_message_key
from headrace.postgres.source.script import VERSION
from headrace.testing import PostgresServer

Connection = psycopg.Connection[Any]

_READ = """
SELECT data FROM pg_logical_slot_get_binary_changes(
    %s, NULL, NULL, 'proto_version', '1', 'publication_names', 'nothing', 'messages', 'true')
"""


class Shared:
    """A database with event triggers, and a role without any rights."""

    def __init__(self, conninfo: str, admin: Connection, role: str, slot: str) -> None:
        self.conninfo, self.admin, self.role, self._slot = conninfo, admin, role, slot

    def session(self) -> Connection:
        return psycopg.connect(self.conninfo, user=self.role, password="x", autocommit=True)

    def emits(self, prefix: str, content: bytes) -> None:
        with self.session() as session:
            session.execute("SELECT pg_logical_emit_message(true, %s, %s::bytea)", (prefix, content))

    def emitted(self) -> list[Emitted]:
        """The messages since the last call, as a pipeline finds them."""
        found, xid = [], 0
        for (data,) in self.admin.execute(_READ, (self._slot,)).fetchall():
            message = decode(bytes(data))
            xid = message.xid if isinstance(message, Begin) else xid
            if isinstance(message, LogicalMessage) and message.prefix != "headrace":
                found.append(Emitted(Lsn(1), Lsn(1), 0, xid, 0, message))
        return found

    def key(self) -> MessageKey:
        key = read_message_key(self.admin)
        assert key is not None
        return key


@pytest.fixture(params=[14, 15, 16, 17, 18])
def shared(servers: Callable[[int], PostgresServer], request: pytest.FixtureRequest) -> Iterator[Shared]:
    with servers(request.param).database() as conninfo, psycopg.connect(conninfo, autocommit=True) as admin:
        role = f"eve_{admin.info.dbname}"
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT CREATE ON SCHEMA public TO {role}")
        install(admin)
        try:
            with listening(admin) as source:
                yield Shared(conninfo, admin, role, source.slot)
        finally:
            admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_what_the_triggers_tell_is_authentic_whoever_runs_the_command(shared: Shared) -> None:
    key = shared.key()
    with shared.session() as session:
        session.execute("CREATE TABLE own (id int PRIMARY KEY)")
        session.execute("SET standard_conforming_strings = off; SET bytea_output = escape; SET search_path = ''")
        session.execute("ALTER TABLE public.own ADD COLUMN v text DEFAULT 'ü'")
        with session.transaction():
            session.execute("SAVEPOINT a; ALTER TABLE public.own ADD COLUMN w text; RELEASE a")
            session.execute("SAVEPOINT b; DROP TABLE public.own")
    shared.admin.execute("CREATE PUBLICATION told")
    emitted = shared.emitted()
    assert [parse_ddl(it.message.content).tag for it in emitted[:4]] == [
        "CREATE TABLE", "ALTER TABLE", "ALTER TABLE", "DROP TABLE",
    ]  # fmt: skip
    assert emitted[4].message.prefix == "headrace.publication"
    assert [is_authentic(key, it) for it in emitted] == [True] * 5


def test_forged_damaged_and_repeated_messages_are_not_authentic(shared: Shared) -> None:
    key = shared.key()
    shared.admin.execute("CREATE TABLE t (id int PRIMARY KEY, salary int)")
    (genuine,) = shared.emitted()
    prefix, content = genuine.message.prefix, genuine.message.content
    shared.emits(prefix, content)  # sent again, in another transaction
    shared.emits(prefix, b"x")
    shared.emits(prefix, b"")
    shared.emits(prefix, content.replace(b"salary", b"celery"))
    shared.emits(prefix, content[: content.rindex(b', "mac"')] + b"}")
    forged = shared.emitted()
    assert is_authentic(key, genuine)
    assert [is_authentic(key, it) for it in forged] == [False] * 5
    other = replace(genuine.message, prefix="headrace.ddl.1")
    assert not is_authentic(key, replace(genuine, message=other))
    assert not is_authentic(replace(key, database=key.database + 1), genuine)
    assert not is_authentic(MessageKey(bytes(64), key.database), genuine)


def test_a_message_that_is_not_authentic_is_reported_once_per_table(shared: Shared) -> None:
    reads: list[int] = []

    def read() -> MessageKey | None:
        reads.append(1)
        return read_message_key(shared.admin)

    verifier = MessageVerifier(read)
    for _ in range(3):
        shared.emits("headrace.ddl.1", b"x")
    with capture_logs() as logs:
        assert [verifier.accepts(oid, "a table", it) for it in shared.emitted() for oid in (1, 2)] == [False] * 6
    assert [line["log_level"] for line in logs] == ["warning"] * 2
    # Forged messages do not make every one of them ask the source.
    assert len(reads) == 1


def test_a_role_without_rights_reads_no_key(shared: Shared) -> None:
    with shared.session() as session:
        assert installed_version(session) == VERSION
        assert read_message_key(session) is None
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT headrace_ddl.message_key()")
        for (oid,) in shared.admin.execute("SELECT oid FROM pg_largeobject_metadata").fetchall():
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("SELECT lo_get(%s::oid)", (oid,))
        target = Target(parse_conninfo(shared.conninfo), "p")
        (finding,) = run_checks(session, target, [schema_changes])
        assert finding.severity is Severity.WARNING
        shared.admin.execute(finding.remedy)
        assert run_checks(session, target, [schema_changes]) == []
        assert read_message_key(session) == shared.key()


def test_a_role_with_replication_may_read_the_key(shared: Shared) -> None:
    shared.admin.execute(f"ALTER ROLE {shared.role} REPLICATION")
    before = shared.key()
    shared.admin.execute("DROP EVENT TRIGGER headrace_sql_drop")
    install(shared.admin)
    with shared.session() as session:
        # The key outlives a new installation: what was signed before is still to be read.
        assert read_message_key(session) == before


def test_a_lost_key_is_made_anew_by_installing(shared: Shared) -> None:
    shared.admin.execute("SELECT lo_unlink(oid) FROM pg_largeobject_metadata")
    shared.admin.execute("CREATE TABLE unsigned (id int)")
    assert installed_version(shared.admin) is None
    install(shared.admin)
    shared.admin.execute("CREATE TABLE signed (id int)")
    assert [is_authentic(shared.key(), it) for it in shared.emitted()] == [False, True]


def test_the_right_to_write_messages_can_be_taken_from_everybody(shared: Shared) -> None:
    """As SECURITY.md says: the event triggers go on."""
    page = (Path(__file__).parents[3] / "SECURITY.md").read_text()
    (block,) = page.split("```sql\n")[1:]
    shared.admin.execute(block.split("```")[0].encode())
    with shared.session() as session:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT pg_logical_emit_message(true, 'x', 'y')")
        session.execute("CREATE TABLE own (id int)")
    assert [is_authentic(shared.key(), it) for it in shared.emitted()] == [True]
