"""`headrace check` as a user runs it: arguments, environment, exit code, and no password in anything it prints."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import headrace
from awaiting import until
from commanding import invoke, write_config
from headrace.config.load import load_pipeline_config
from headrace.config.receiver import StreamConfig
from headrace.lsn import Lsn
from headrace.postgres.connection import parse_conninfo
from headrace.postgres.publications import published_tables
from headrace.postgres.slots import create_slot
from headrace.replication.wire import Wire
from headrace.stores import SqliteStore
from headrace.stores.records import DestinationTableMetadata
from headrace.testing.postgres import PASSWORD

Connection = psycopg.Connection[tuple[object, ...]]

WIDE = {"COLUMNS": "400", "TERM": "dumb", "NO_COLOR": "1"}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "HEADRACE_SOURCE"))}
    result = subprocess.run(
        [sys.executable, "-c", "from headrace.cli.main import app; app()", *arguments],
        capture_output=True, text=True, check=False, env={**clean, **WIDE, **environment},
    )  # fmt: skip
    assert PASSWORD not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result


def url(conninfo: str) -> str:
    it = parse_conninfo(conninfo)
    return f"postgresql://{it.username}:{PASSWORD}@{it.host}:{it.port}/{it.name}"


@pytest.fixture
def ready(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION shop FOR TABLE t")


@pytest.mark.usefixtures("ready")
def test_a_ready_source_exits_0_and_shows_its_warnings(conninfo: str) -> None:
    result = run("check", "--source", url(conninfo), "--publication", "shop")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "max_slot_wal_keep_size" in result.stdout
    assert "checks of 127.0.0.1" in result.stdout
    assert result.stdout.rstrip().endswith("1 warning, 1 note")


def test_errors_exit_1_with_a_remedy(connection: Connection, conninfo: str) -> None:
    connection.execute("CREATE TABLE keyless (id int); CREATE PUBLICATION shop FOR TABLE keyless")
    result = run("check", "--source", conninfo, "--publication", "shop")
    assert result.returncode == 1
    assert 'ALTER TABLE "public"."keyless" REPLICA' in " ".join(result.stdout.split())
    assert "1 error, 2 warnings" in result.stdout


def test_json_is_the_findings_and_nothing_else(conninfo: str) -> None:
    result = run("check", "--source", url(conninfo), "--publication", "nosuch", "--json")
    assert result.returncode == 1
    findings = json.loads(result.stdout)
    assert {"check", "severity", "message", "remedy"} == findings[0].keys()
    assert ("publication", "error") in {(finding["check"], finding["severity"]) for finding in findings}


@pytest.mark.usefixtures("ready")
def test_source_from_the_environment_and_password_from_pgpassword_or_file(conninfo: str, tmp_path: Path) -> None:
    it = parse_conninfo(conninfo)
    source = make_conninfo("", host=it.host, port=it.port, user=it.username, dbname=it.name)
    assert run("check", "--publication", "shop", HEADRACE_SOURCE=source, PGPASSWORD=PASSWORD).returncode == 0
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    file = ("--password-file", str(path))
    assert run("check", "--publication", "shop", *file, HEADRACE_SOURCE=source).returncode == 0
    refused = run("check", "--publication", "shop", HEADRACE_SOURCE=source)
    assert refused.returncode == 3
    assert "no password supplied" in refused.stderr
    both = run("check", "--publication", "shop", *file, "--source", url(conninfo))
    assert both.returncode == 2


def test_a_server_that_cannot_be_reached_exits_3(conninfo: str) -> None:
    unreachable = make_conninfo(conninfo, port=1)
    result = run("check", "--source", unreachable, "--publication", "shop")
    assert (result.returncode, result.stdout) == (3, "")
    assert "Connection refused" in result.stderr
    wrong = run("check", "--source", make_conninfo(conninfo, password=f"not-{PASSWORD[:4]}"), "--publication", "shop")
    assert wrong.returncode == 3
    assert "pg_hba.conf" in wrong.stderr


@pytest.mark.parametrize("source", [f"postgresql://a:{PASSWORD}@h:port/d", f"host=h password='{PASSWORD}", PASSWORD])
def test_a_bad_source_is_wrong_usage_and_is_not_repeated(source: str) -> None:
    result = run("check", "--source", source, "--publication", "shop")
    assert result.returncode == 2
    assert "--source" in result.stderr


def test_missing_options_are_wrong_usage() -> None:
    assert run("check").returncode == 2


def test_help_teaches_and_version_tells() -> None:
    top = run("--help")
    assert top.returncode == 0
    assert "headrace check --source" in top.stdout
    assert (
        "Exit codes: 0 no errors, 1 errors found, 2 wrong usage, 3 could not connect." in run("check", "--help").stdout
    )
    assert run("--version").stdout == f"headrace {headrace.__version__}\n"


@pytest.mark.usefixtures("ready")
def test_a_pipeline_is_checked_with_its_settings_and_this_machine(conninfo: str, tmp_path: Path) -> None:
    file = write_config(tmp_path / "pipeline.yaml", conninfo, publication_name="shop")
    result = invoke("check", file)
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "checks of pipeline 1 and 127.0.0.1" in result.stdout
    named = {"table_sync_copy": {"type": "skip_tables", "tables": ["public.tt"]}, "destination": None}
    write_config(file, conninfo, publication_name="shop", **named)
    result = invoke("check", file, "--json", JAVA_HOME=str(tmp_path))
    assert result.exit_code == 1
    errors = {finding["check"] for finding in json.loads(result.stdout) if finding["severity"] == "error"}
    assert errors == {"destination", "java", "named tables"}
    hidden = {"transforms": {"tables": {"public.tt": {"columns": {"exclude": ["x"]}}}}}
    write_config(file, conninfo, publication_name="shop", **hidden)
    result = invoke("check", file, "--json")
    assert result.exit_code == 1
    (found,) = [finding for finding in json.loads(result.stdout) if finding["severity"] == "error"]
    assert found["message"] == "transforms.tables names public.tt, which the publication does not have"


def test_what_a_start_refuses_of_a_destinations_tables(connection: Connection, conninfo: str, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE t")
    duckdb = {"kind": "duckdb", "database": str(tmp_path / "d.duckdb"), "tables": {"public.former": {"mode": "mirror"}}}

    def found(**settings: object) -> list[tuple[str, str, str]]:
        result = invoke("check", write_config(tmp_path / "pipeline.yaml", conninfo, **settings), "--json")
        findings = [finding for finding in json.loads(result.stdout) if finding["check"] == "destination tables"]
        assert result.exit_code == any(finding["severity"] == "error" for finding in findings)
        return [(finding["severity"], finding["message"], finding["remedy"]) for finding in findings]

    unknown = "destination.tables names public.former, which is not in the publication"
    assert found(destination=duckdb) == [("error", unknown, "did you mean public.t?")]
    several = {"destination": None, "destinations": {"duck": duckdb, "none": {"kind": "null"}}}
    assert found(**several)[0][:2] == ("error", f"destinations.duck: {unknown}")
    connection.execute("CREATE SCHEMA s; CREATE TABLE s.t (id int PRIMARY KEY); ALTER PUBLICATION pub ADD TABLE s.t")
    ((severity, message, _),) = found(destination={**duckdb, "tables": {}, "namespace": "all"})
    assert (severity, message) == ("error", "tables public.t and s.t have the same name at the destination: all.t")
    # A name that the store knows as the table's former one is the table's.
    place = tmp_path / "data" / "pipeline-1"
    place.mkdir(parents=True)
    with closing(SqliteStore(place / "store.db", 1)) as store:
        (schema,) = [it for it in published_tables(connection, "pub") if it.table.name.schema == "public"]
        store.store_destination_metadata(
            schema.table.id, DestinationTableMetadata("public.former", Lsn(1), schema.mask)
        )
    assert found(destination=duckdb) == []
    # Where the store cannot be read, nobody knows.
    (place / "store.db").write_text("no store at all")
    assert found(destination=duckdb)[0][0] == "warning"


def test_a_keyless_table_is_named(connection: Connection, conninfo: str, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE keyless (id int); CREATE PUBLICATION shop FOR TABLE keyless")
    result = invoke("check", write_config(tmp_path / "pipeline.yaml", conninfo, publication_name="shop"))
    assert result.exit_code == 1
    assert "public.keyless has no primary key" in result.stdout


@pytest.mark.parametrize("command", [["check"], ["run", "--no-live"]])
@pytest.mark.parametrize("kind", ["another database", "physical"])
def test_a_slot_name_that_is_taken_is_told_before_spark_starts(
    connection: Connection, conninfo: str, tmp_path: Path, command: list[str], kind: str
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE t")
    name = f"taken_{connection.info.dbname}"
    file = write_config(tmp_path / "pipeline.yaml", conninfo, slot_name=name)
    with psycopg.connect(make_conninfo(conninfo, dbname="postgres"), autocommit=True) as elsewhere:
        if kind == "physical":
            elsewhere.execute("SELECT pg_create_physical_replication_slot(%s)", (name,))
        else:
            elsewhere.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        try:
            # Spark could not start.
            result = invoke(*command, file, JAVA_HOME=str(tmp_path))
        finally:
            elsewhere.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    told = result.stdout + result.stderr
    assert f"replication slot {name} is a" in told
    assert ("a physical slot" if kind == "physical" else "a slot of database postgres") in told
    assert f"reads database {connection.info.dbname}" in told
    assert result.exit_code == (1 if command == ["check"] else 2)


def test_what_is_wrong_here_is_told_even_if_the_source_is_away(conninfo: str, tmp_path: Path) -> None:
    file = write_config(tmp_path / "pipeline.yaml", conninfo, destination=None)
    result = invoke("check", file, HEADRACE__PG_CONNECTION__PORT="1")
    assert result.exit_code == 3
    assert "names no destination" in result.stdout
    assert "cannot connect to Postgres" in result.stderr


def test_a_file_and_options_are_one_too_many(conninfo: str, tmp_path: Path) -> None:
    file = write_config(tmp_path / "pipeline.yaml", conninfo)
    for option in ("--source", "--publication"):
        result = invoke("check", file, option, "x")
        assert result.exit_code == 2
        assert option in result.stderr


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"transforms": {"tables": {"public.t": {"columns": {"exclude": ["nosuch"]}}}}},
            "names nosuch, which",
        ),
        ({"transforms": {"tables": {"public.t": {"columns": {"exclude": ["id"]}}}}}, "is part of its key"),
        ({"transforms": {"tables": {"public.t": {"filter": "nosuch > 1"}}}}, "filter of table public.t cannot be"),
        ({"spool": {"uri": "nosuch://bucket/spool"}}, "spool.uri is at nosuch://, which cannot be opened"),
    ],
)
def test_what_run_would_refuse_is_refused_by_check_and_by_run_before_spark_starts(
    conninfo: str, tmp_path: Path, settings: dict[str, object], said: str
) -> None:
    file = write_config(tmp_path / "pipeline.yaml", conninfo, publication_name="shop", **settings)
    checked = invoke("check", file)
    assert (checked.exit_code, said in " ".join(checked.stdout.split())) == (1, True), checked.stdout
    ran = run("run", str(file), PGPASSWORD=PASSWORD)
    assert (ran.returncode, said in ran.stderr) == (2, True), ran.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("ready")
def test_a_taken_metrics_port_is_refused_unless_the_pipeline_itself_has_it(
    conninfo: str, connection: Connection, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = {"enabled": True, "port": taken.getsockname()[1]}
        file = write_config(tmp_path / "pipeline.yaml", conninfo, publication_name="shop", metrics=metrics)
        checked, ran = invoke("check", file), invoke("run", file)
        assert (checked.exit_code, ran.exit_code) == (1, 2)
        assert "metrics cannot be served on port" in checked.stdout
        assert "metrics cannot be served on port" in ran.stderr
        # While the slot is read, the pipeline runs, and the port is its own.
        config = load_pipeline_config(file, {"HEADRACE__PG_CONNECTION__PASSWORD": PASSWORD})
        stream = StreamConfig(pg_connection=config.pg_connection, publication_name="shop", slot_name=config.slot_name)
        start = create_slot(connection, config.slot_name)
        with Wire.connect(stream, "receiver") as wire:
            wire.start(start)
            active = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            until(lambda: connection.execute(active, (config.slot_name,)).fetchone() == (True,))
            checked = invoke("check", file)
        assert (checked.exit_code, "metrics cannot" in checked.stdout) == (0, False), checked.stdout
