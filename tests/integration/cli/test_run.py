"""`headrace run` and `headrace copy` as a user runs them: real processes, real signals, and what is left of them."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
import yaml
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.postgres.connection import parse_conninfo
from headrace.stores import SqliteStore
from headrace.table_state import State, TableState
from headrace.testing.postgres import PASSWORD
from started import Started, commands

Connection = psycopg.Connection[tuple[object, ...]]


def settings(conninfo: str, root: Path, kind: str, **more: Any) -> Path:
    """A pipeline's file, quick to start and to react."""
    at = parse_conninfo(conninfo)
    connection = {"host": at.host, "port": at.port, "name": at.name, "username": at.username, "password": PASSWORD}
    values = {
        "id": 7,
        "publication_name": "pub",
        "slot_name": f"slot_{at.name}",
        "pg_connection": connection,
        "data_dir": str(root / "data"),
        "destination": {"kind": kind},
        "spark": {"master": "local[1]", "short_lived": True, "driver_memory": "512m"},
        "batch": {"max_fill_ms": 50},
        "spool": {"segment_age_ms": 20},
        "receiver": {"status_interval_ms": 50},
        **more,
    }
    path = root / "pipeline.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    with commands() as begin:
        yield begin


@pytest.fixture
def here() -> Iterator[CliRunner]:
    """Runs commands in this process, for what ends before Spark starts; logging is put back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield CliRunner()
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def source(connection: Connection) -> Connection:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text); INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE t")
    return connection


@pytest.mark.spark
def test_run_streams_stops_at_once_or_in_order_and_goes_on(
    source: Connection, conninfo: str, tmp_path: Path, start: Callable[..., Started]
) -> None:
    path = str(settings(conninfo, tmp_path, "stdout"))

    # Given a pipeline that has copied and streams
    first = start("run", path)
    first.until(first.ready)
    source.execute("INSERT INTO t VALUES (3, 'three')")
    first.until(lambda: any(line["kind"] == "commit" for line in first.objects()))
    rows = [line["row"] for line in first.objects() if line["kind"] in ("row", "insert")]
    assert rows == [{"id": 1, "note": "one"}, {"id": 2, "note": "two"}, {"id": 3, "note": "three"}]

    # When it is told twice to stop
    children = first.children()
    assert {"java"} <= {child.name() for child in children}
    receiver = next(child for child in children if "headrace.replication.child" in child.cmdline())
    # A receiver that stands still keeps the orderly stop from ending before the second signal.
    receiver.suspend()
    first.process.send_signal(signal.SIGINT)
    first.until(lambda: first.logged("stopping…", "SIGINT"))
    first.process.send_signal(signal.SIGINT)

    # Then it ends on the spot, and so do all its processes
    assert first.ended() == 130
    assert first.err[-1] == "stopped immediately; the next start resumes from what is durable\n"
    assert [child for child in children if child.is_running()] == []

    # And the next start goes on with what came meanwhile, copies nothing, and stops in order
    source.execute("INSERT INTO t VALUES (4, 'four')")
    second = start("run", path)
    second.until(lambda: any(line.get("row") == {"id": 4, "note": "four"} for line in second.objects()))
    assert not [line for line in second.objects() if line["kind"] in ("row", "drop")]
    children = second.children()
    second.process.terminate()
    assert second.ended() == 0
    assert second.logged("stopped", "SIGTERM")
    assert [child for child in children if child.is_running()] == []
    row = source.execute("SELECT active FROM pg_replication_slots WHERE database = current_database()").fetchone()
    assert row == (False,)


@pytest.mark.spark
def test_copy_copies_everything_once_and_leaves_no_slot(
    source: Connection, conninfo: str, tmp_path: Path, start: Callable[..., Started]
) -> None:
    # Shown as on a terminal: the view and the log lines share standard error.
    path = str(settings(conninfo, tmp_path, "null"))
    copy = start("copy", path, "--live", COLUMNS="120", LINES="30", TERM="xterm")
    assert copy.ended() == 0, "".join(copy.err)
    said = "".join(copy.err)
    assert "public.t" in said
    assert "1 of 1 tables copied: 2 rows" in copy.err[-1]
    assert copy.out == []
    assert source.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    ).fetchone() == (0,)


@pytest.mark.spark
def test_a_copy_that_is_not_whole_exits_1(
    source: Connection, conninfo: str, tmp_path: Path, start: Callable[..., Started]
) -> None:
    # Given a table that the role may not read
    role = f"copier_{source.info.dbname}"
    source.execute("CREATE TABLE secret (id int PRIMARY KEY); ALTER PUBLICATION pub ADD TABLE secret")
    source.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT ON t TO {role}")
    try:
        path = str(settings(conninfo, tmp_path, "null"))
        failed = start("copy", path, "--no-live", HEADRACE__PG_CONNECTION__USERNAME=role)
        assert failed.ended() == 1, "".join(failed.err)
        assert failed.logged("1 of 2 tables copied: 2 rows")
        assert failed.logged("error", "public.secret", "permission denied")
        assert failed.err[-1].startswith("what to do ")
        # Given a signal, while Spark still starts
        stopped = start("copy", path, "--no-live")
        stopped.until(lambda: "java" in {child.name() for child in stopped.children()})
        stopped.process.terminate()
        assert stopped.ended() == 1, "".join(stopped.err)
        assert stopped.logged("stopped", "SIGTERM")
        assert stopped.err[-1].startswith("0 of ")
    finally:
        source.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("settings_of", "code", "said", "remedy"),
    [
        ({"pg_connection": {"password": "wrong"}}, 3, "password authentication failed", "check user, password"),
        ({"pg_connection": {"port": 1}}, 3, "cannot connect to Postgres at 127.0.0.1:1,", "check that the server runs"),
        ({"pg_connection": {"host": "no.invalid"}}, 3, "failed to resolve host", "check how the host is spelled"),
        (
            {"pg_connection": {"name": "nosuch"}},
            3,
            'database "nosuch" does not exist',
            "check the name of the database",
        ),
        ({"publication_name": "nosuch"}, 4, 'publication "nosuch" does not exist', "create it: CREATE PUBLICATION"),
        ({"publicaton_name": "pub"}, 2, "unknown setting; did you mean publication_name?", "correct the settings"),
        ({"destination": {"kind": "icebreg"}}, 2, "no destination is called 'icebreg'", "correct the settings"),
        (
            {"data_dir": "/dev/null/data"},
            2,
            "data_dir is /dev/null/data, but /dev/null is a file",
            "move it away, or set data_dir to another place",
        ),
    ],
)
def test_a_start_that_cannot_work_says_why_and_what_to_do(  # noqa: PLR0917
    conninfo: str, tmp_path: Path, here: CliRunner, settings_of: dict[str, Any], code: int, said: str, remedy: str
) -> None:
    path = settings(conninfo, tmp_path, "null")
    values = yaml.safe_load(path.read_text())
    for name, value in settings_of.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    path.write_text(yaml.safe_dump(values))
    result = here.invoke(app, ["run", str(path), "--no-live"])
    assert result.exit_code == code, result.stderr
    assert said in result.stderr
    assert f"what to do {remedy}" in result.stderr
    assert PASSWORD not in result.output
    assert result.stdout == ""


def test_without_java_the_error_says_what_to_install(
    source: Connection, conninfo: str, tmp_path: Path, start: Callable[..., Started]
) -> None:
    run = start("run", str(settings(conninfo, tmp_path, "null")), JAVA_HOME=str(tmp_path))
    assert run.ended() == 4
    assert f"error JAVA_HOME is {tmp_path}, but there is no bin/java in it\n" in run.err
    assert run.err[-1].startswith("what to do install Java 17 or 21")
    count = source.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()").fetchone()
    assert count == (0,)


@pytest.mark.usefixtures("source")
def test_copy_refuses_tables_that_a_pipeline_streams(conninfo: str, tmp_path: Path, here: CliRunner) -> None:
    path = settings(conninfo, tmp_path, "null")
    database = tmp_path / "data" / "pipeline-7" / "store.db"
    database.parent.mkdir(parents=True)
    store = SqliteStore(database, 7)
    store.update_table_states({4711: TableState(State.INIT)})
    store.update_table_states({4711: TableState(State.DATA_SYNC)})
    store.close()
    result = here.invoke(app, ["copy", str(path), "--no-live"])
    assert result.exit_code == 4
    assert "pipeline 7 streams 1 tables to this destination already" in result.stderr
    assert "give the copy another id" in result.stderr
