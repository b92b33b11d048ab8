"""`headrace tail` as a newcomer runs it: against their own server, with no configuration, and nothing left behind."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from awaiting import until
from commanding import invoke
from headrace.postgres.connection import parse_conninfo
from headrace.testing.postgres import PASSWORD, PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]

PATIENCE_S = 60
COMMAND = [sys.executable, "-c", "from headrace.cli.main import app; app()", "tail"]
# Java is not needed: there is none to be found.
ENVIRONMENT = {"COLUMNS": "200", "TERM": "xterm-256color", "JAVA_HOME": "/nonexistent"}


class Tail:
    """The command at work, from the moment it follows the stream."""

    def __init__(self, *arguments: str, stdout: int = subprocess.PIPE, command: Sequence[str] = COMMAND) -> None:
        hidden = ("PG", "HEADRACE_SOURCE", "NO_COLOR", "FORCE_COLOR")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.process = subprocess.Popen(
            [*command, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, env={**clean, **ENVIRONMENT}
        )
        self.told: list[str] = []

    def started(self) -> Tail:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.told.append(line)
            if line.startswith("following"):
                return self
        raise AssertionError("".join(self.told))

    def events(self, count: int) -> list[dict[str, Any]]:
        """The next lines."""
        assert self.process.stdout is not None
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        _, rest = self.process.communicate(timeout=PATIENCE_S)
        self.told.append(rest)
        assert "Traceback" not in rest, rest
        return self.process.returncode


@contextmanager
def tailing(*arguments: str, stdout: int = subprocess.PIPE, command: Sequence[str] = COMMAND) -> Iterator[Tail]:
    tail = Tail(*arguments, stdout=stdout, command=command)
    try:
        yield tail.started()
    finally:
        tail.process.kill()
        tail.process.communicate()


def refused(*arguments: str) -> tuple[int, str]:
    result = invoke("tail", *arguments)
    assert result.stdout == ""
    return result.exit_code, " ".join(result.stderr.split())


@pytest.fixture
def orders(connection: Connection) -> None:
    connection.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(10,2)); "
        "CREATE TABLE visits (page text); ALTER TABLE visits REPLICA IDENTITY FULL; "
        "CREATE PUBLICATION pub FOR ALL TABLES"
    )


def assert_nothing_is_left(connection: Connection, publications: int) -> None:
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    # The server drops it with the session, and learns of its end a moment after the client has gone.
    until(lambda: connection.execute(slots).fetchone() == (0,))
    assert connection.execute("SELECT count(*) FROM pg_publication").fetchone() == (publications,)


@pytest.mark.matrix
@pytest.mark.usefixtures("orders")
def test_each_event_is_a_line_of_json_in_a_pipe(connection: Connection, conninfo: str) -> None:
    with tailing(conninfo, "--publication", "pub") as tail:
        connection.execute("INSERT INTO orders VALUES (1, 'tea', 1.5)")
        begin, insert, commit = tail.events(3)
        assert (begin["kind"], commit["kind"]) == ("begin", "commit")
        assert insert["row"] == {"id": 1, "item": "tea", "price": "1.50"}
        assert insert["table"] == "public.orders"
        assert insert["commit_lsn"] == begin["commit_lsn"] == commit["commit_lsn"]
        with connection.transaction():
            connection.execute("UPDATE orders SET id = 2 WHERE id = 1")
            connection.execute("INSERT INTO visits VALUES ('a')")
            connection.execute("UPDATE visits SET page = 'b'")
            connection.execute("DELETE FROM orders")
            connection.execute("TRUNCATE orders, visits RESTART IDENTITY")
        begin, *changes, commit = tail.events(7)
        assert [change["kind"] for change in changes] == ["update", "insert", "update", "delete", "truncate"]
        assert [change["tx_ordinal"] for change in changes] == [0, 1, 2, 3, 4]
        assert [change.get("old") for change in changes] == [{"id": 1}, None, {"page": "a"}, {"id": 2}, None]
        assert sorted(changes[4]["tables"]) == ["public.orders", "public.visits"]
        assert changes[4]["options"] == ["RESTART_IDENTITY"]
        assert tail.stop() == 0
    summary = "6 changes in 2 transactions, of 2 tables: 2 inserts, 2 updates, 1 delete, 1 truncate"
    assert tail.told[-1].strip() == summary
    assert_nothing_is_left(connection, publications=1)


@pytest.mark.matrix
@pytest.mark.usefixtures("orders")
def test_an_altered_table_and_a_new_one_are_told_of(connection: Connection, conninfo: str) -> None:
    with tailing(conninfo, "--publication", "pub") as tail:
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
        connection.execute("ALTER TABLE orders ADD how mood DEFAULT 'ok'; ALTER TABLE orders RENAME item TO thing")
        connection.execute("INSERT INTO orders VALUES (1, 'tea', 1, 'sad')")
        _, relation, insert, _ = tail.events(4)
        assert (relation["kind"], relation["first"]) == ("relation", False)
        assert relation["columns"][1:] == [
            {"name": "thing", "type": "text", "attnum": 2},
            {"name": "price", "type": "numeric", "attnum": 3},
            {"name": "how", "type": "mood", "attnum": 4, "missing": "ok"},
        ]
        assert insert["row"] == {"id": 1, "thing": "tea", "price": "1.00", "how": "sad"}
        connection.execute("CREATE TABLE fresh (id int PRIMARY KEY); INSERT INTO fresh VALUES (7)")
        _, relation, insert, _ = tail.events(4)
        assert (relation["table"], relation["first"]) == ("public.fresh", True)
        assert insert["row"] == {"id": 7}


@pytest.mark.usefixtures("orders")
def test_values_are_what_postgres_has(connection: Connection, conninfo: str) -> None:
    connection.execute(
        "CREATE TABLE samples (id int PRIMARY KEY, n numeric, d numeric(6,3), b bytea, t timestamptz, i int[], j jsonb,"
        " f real)"
    )
    rows = [
        "1, 123456789012345678901234567890.5, 1.5, '\\x0aff', '2026-01-02 03:04:05+02', '{1,NULL}', '{\"a\": 1}', 0.1",
        "2, 'NaN', 'NaN', '', 'infinity', '{}', 'null', '-infinity'",
    ]
    with tailing(conninfo, "--publication", "pub", "--limit", "2", "--json") as tail:
        connection.execute("; ".join(f"INSERT INTO samples VALUES ({row})" for row in rows))
        _, first, second = tail.events(3)
        assert tail.ended() == 0
    assert first["row"] == {
        "id": 1, "n": "123456789012345678901234567890.5", "d": "1.500", "b": "\\x0aff",
        "t": "2026-01-02T01:04:05+00:00", "i": [1, None], "j": '{"a": 1}', "f": 0.1,
    }  # fmt: skip
    # What no Arrow type holds is shown as Postgres prints it, not as NULL.
    expected = {"id": 2, "n": "NaN", "d": "NaN", "b": "\\x", "t": "infinity", "i": [], "j": "null", "f": "-Infinity"}
    assert second["row"] == expected


@pytest.mark.usefixtures("orders")
def test_a_transaction_of_many_reads_is_one(connection: Connection, conninfo: str) -> None:
    count = 40_000
    with tailing(conninfo, "--publication", "pub", "--table", "orders") as tail:
        sql = "INSERT INTO visits SELECT g::text FROM generate_series(1, %s) g"
        with connection.transaction():
            connection.execute(sql, (count,))
            connection.execute(
                "INSERT INTO orders SELECT g, repeat('x', 40), g FROM generate_series(1, %s) g", (count,)
            )
            connection.execute("DELETE FROM orders WHERE id = 1")
        begin, *changes, commit = tail.events(count + 3)
        assert (begin["kind"], commit["kind"]) == ("begin", "commit")
        assert {change["commit_lsn"] for change in changes} == {begin["commit_lsn"]}
        # Those that are not shown count too: a change has the same place wherever it is seen.
        assert [change["tx_ordinal"] for change in changes] == list(range(count, 2 * count + 1))
        assert tail.stop() == 0
    assert "40,001 changes in 1 transaction, of 1 table" in tail.told[-1]


@pytest.mark.usefixtures("orders")
def test_on_a_terminal_it_is_readable_and_in_colours(connection: Connection, conninfo: str) -> None:
    connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    reader, writer = pty.openpty()
    with tailing(conninfo, "--publication", "pub", stdout=writer) as tail:
        os.close(writer)
        connection.execute("INSERT INTO orders VALUES (1, E'te\\x1b[31ma', 1.5)")
        connection.execute("UPDATE orders SET price = 2.5")
        connection.execute("ALTER TABLE orders ADD note text")
        connection.execute("DELETE FROM orders")
        coloured = _until(reader, b"DELETE", b"COMMIT")
        assert tail.stop() == 0
    os.close(reader)
    assert "\x1b[1;32mINSERT" in coloured
    lines = [line.split("  ") for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()]
    assert [line[0].split()[0] if line[0] else line[1].split()[0] for line in lines] == [
        "BEGIN", "INSERT", "COMMIT", "BEGIN", "UPDATE", "COMMIT", "BEGIN", "ALTER", "DELETE", "COMMIT",
    ]  # fmt: skip
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    # What the database holds does nothing to the terminal.
    assert r"INSERT   public.orders  id=1  item='te\x1b[31ma'  price=1.50" in plain
    assert "UPDATE   public.orders  id=1  price=1.50 → 2.50\r\n" in plain
    assert "ALTER    public.orders  +note text" in plain


def _until(terminal: int, *marks: bytes) -> str:
    """What the terminal shows until the marks have come, one after the other."""
    shown, at = b"", 0
    while True:
        assert select.select([terminal], [], [], PATIENCE_S)[0], shown
        shown += os.read(terminal, 4096)
        at = 0
        for mark in marks:
            at = shown.find(mark, at) + 1
            if at == 0:
                break
        else:
            if shown.endswith(b"\r\n"):
                return shown.decode()


@pytest.mark.usefixtures("orders")
def test_a_reader_that_has_seen_enough_ends_it(connection: Connection, conninfo: str) -> None:
    with tailing(conninfo, "--publication", "pub") as tail:
        assert tail.process.stdout is not None
        tail.process.stdout.close()
        tail.process.stdout = None
        connection.execute("INSERT INTO visits VALUES ('a')")
        assert tail.ended() == 0
    # What one read brought is counted before the pipe says that nobody takes it.
    assert re.search(r"[01] changes? in ", tail.told[-1])


@pytest.mark.usefixtures("orders")
def test_the_server_hears_of_us_while_a_pager_holds_up_the_output(connection: Connection, conninfo: str) -> None:
    with tailing(conninfo, "--publication", "pub") as tail:
        connection.execute("INSERT INTO visits SELECT repeat('x', 100) FROM generate_series(1, 20000) g")
        # Nobody reads: the pipe is full after some hundred lines.
        query = "SELECT reply_time FROM pg_stat_replication WHERE application_name LIKE 'headrace_tail%%' AND pid = %s"
        pid = connection.execute(
            "SELECT active_pid FROM pg_replication_slots WHERE database = current_database()"
        ).fetchone()
        assert pid is not None
        first = connection.execute(query, pid).fetchone()
        heard = {first}
        clock = threading.Event()
        for _ in range(PATIENCE_S * 10):
            heard.add(connection.execute(query, pid).fetchone())
            if len(heard) > 3:
                break
            clock.wait(0.1)
        assert len(heard) > 3
        assert len(tail.events(20_002)) == 20_002
        assert tail.stop() == 0


def test_a_publication_of_its_own_is_gone_afterwards(connection: Connection, conninfo: str) -> None:
    connection.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE keyless (id int)")
    with tailing(conninfo, "--create-publication", "--table", "orders", "--limit", "1") as tail:
        assert 'FOR TABLE "public"."orders"' in tail.told[0]
        connection.execute("INSERT INTO orders VALUES (1)")
        assert tail.ended() == 0
    assert_nothing_is_left(connection, publications=0)
    code, told = refused(conninfo, "--create-publication")
    assert code == 2
    assert "UPDATE and DELETE on public.keyless would fail" in told
    assert_nothing_is_left(connection, publications=0)


@pytest.mark.usefixtures("orders")
def test_a_password_in_the_source_is_not_in_the_process_list(connection: Connection, conninfo: str) -> None:
    it = parse_conninfo(conninfo)
    source = f"postgresql://{it.username}:{PASSWORD}@{it.host}:{it.port}/{it.name}"
    command = [sys.executable, "-c", "from headrace.cli.entry import main; main()", "tail"]
    with tailing(source, "--publication", "pub", "--limit", "1", command=command) as tail:
        shown = Path(f"/proc/{tail.process.pid}/cmdline").read_bytes()
        assert PASSWORD.encode() not in shown
        assert b"tail" in shown
        connection.execute("INSERT INTO orders (id) VALUES (77)")
        assert tail.ended() == 0


def test_without_a_publication_it_says_what_to_do(connection: Connection, conninfo: str) -> None:
    code, told = refused(conninfo)
    assert code == 2
    assert "--create-publication, or run CREATE PUBLICATION … FOR ALL TABLES" in told
    connection.execute("CREATE PUBLICATION shop")
    assert "give --publication: this database has shop" in refused(conninfo)[1]
    code, told = refused(conninfo, "--publication", "shopp")
    assert (code, "CREATE PUBLICATION" in told) == (2, True), told


def test_errors_are_advice(connection: Connection, conninfo: str, tmp_path: Path) -> None:
    connection.execute("CREATE PUBLICATION pub")
    code, told = refused(make_conninfo(conninfo, port=1), "--publication", "pub")
    assert (code, "check that the server runs" in told) == (3, True), told
    wrong = tmp_path / "password"
    wrong.write_text("wrong")
    it = parse_conninfo(conninfo)
    url = f"postgresql://{it.username}@{it.host}:{it.port}/{it.name}"
    code, told = refused(url, "--publication", "pub", "--password-file", str(wrong))
    assert (code, "pg_hba.conf" in told) == (3, True), told
    role = f"plain_{it.name}"
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'".encode())
    code, told = refused(make_conninfo(conninfo, user=role), "--publication", "pub")
    connection.execute(f"DROP ROLE {role}".encode())
    assert (code, f'ALTER ROLE "{role}" REPLICATION' in told) == (1, True), told
    assert refused("nonsense")[0] == 2


def test_a_server_that_cannot_decode_is_told_how() -> None:
    with PostgresServer(settings={"wal_level": "replica"}) as server, server.database() as conninfo:
        code, told = refused(conninfo, "--publication", "pub")
    assert (code, "ALTER SYSTEM SET wal_level = 'logical'" in told) == (1, True), told
