"""`headrace init`: by options, by answers, with and without a source; what it creates and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from commanding import invoke
from headrace.config.load import load_pipeline_config
from headrace.postgres.connection import parse_conninfo
from headrace.postgres.publications import published_tables, read_publication
from headrace.postgres.slots import create_slot, drop_slot
from headrace.testing.postgres import PASSWORD

Connection = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def tables(connection: Connection) -> None:
    connection.execute('CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE "Line Items" (id int PRIMARY KEY)')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.yaml"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cli.init.on_terminal", lambda: True)


def names(connection: Connection, publication: str) -> list[str]:
    return [str(schema.table.name) for schema in published_tables(connection, publication)]


def test_from_options_without_a_question(path: Path, conninfo: str, connection: Connection) -> None:
    result = invoke("init", path, "--source", conninfo, "--publication", "shop_pub", "--create-publication")
    assert result.exit_code == 0, result.stderr
    assert "CREATE PUBLICATION" in result.stdout
    assert f"next: headrace check {path}" in result.stdout
    assert PASSWORD not in path.read_text()
    it = load_pipeline_config(path, environ={})
    assert (it.pg_connection.name, it.publication_name) == (parse_conninfo(conninfo).name, "shop_pub")
    assert it.destination is not None
    assert (it.destination.kind, it.destination.options["warehouse"]) == ("iceberg", "./warehouse")
    publication = read_publication(connection, "shop_pub")
    assert (publication.all_tables, publication.via_partition_root) == (True, True)
    # The file is one that check accepts.
    result = invoke("check", path)
    assert result.exit_code == 0, result.stdout + result.stderr


def test_a_publication_of_chosen_tables(path: Path, conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE TABLE keyless (a int)")
    chosen = ("--table", "Line Items", "--table", "public.orders")
    result = invoke("init", path, "--source", conninfo, "--publication", "p", "--create-publication", *chosen)
    assert result.exit_code == 0, result.stderr
    assert names(connection, "p") == ["public.Line Items", "public.orders"]
    assert not read_publication(connection, "p").all_tables


def test_a_publication_that_would_break_writes_is_not_proposed(
    path: Path, conninfo: str, connection: Connection
) -> None:
    connection.execute("CREATE TABLE bare (a int)")
    result = invoke("init", path, "--source", conninfo, "--publication", "p")
    assert result.exit_code == 0
    assert "public.bare (no key)" in result.stdout
    (proposed,) = [line for line in result.stdout.splitlines() if line.startswith("create it before")]
    statement = proposed.partition(": ")[2]
    connection.execute(statement.encode())
    assert "public.bare" not in names(connection, "p")
    assert "public.orders" in names(connection, "p")


@pytest.mark.parametrize("identity", ["", "ALTER TABLE keyless REPLICA IDENTITY FULL"])
def test_a_publication_that_would_break_writes_is_refused(
    path: Path, conninfo: str, connection: Connection, identity: str
) -> None:
    connection.execute(f"CREATE TABLE keyless (a int); {identity}")
    result = invoke("init", path, "--source", conninfo, "--publication", "p", "--create-publication")
    assert result.exit_code == (0 if identity else 2)
    assert path.exists() == bool(identity)
    if not identity:
        assert "UPDATE and DELETE on public.keyless would fail" in result.stderr
        assert connection.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)


def test_a_table_that_is_not_there_names_the_nearest(path: Path, conninfo: str) -> None:
    result = invoke(
        "init", path, "--source", conninfo, "--publication", "p", "--create-publication", "--table", "oders"
    )
    assert result.exit_code == 2
    assert "no table oders in this database" in result.stderr
    assert "did you mean public.orders?" in result.stderr
    assert not path.exists()


@pytest.mark.parametrize(
    ("place", "told"),
    [("a-file/new.yaml", "a-file is a file, not a directory"), ("no/new.yaml", "there is no directory")],
)
def test_a_place_where_it_cannot_be_written(path: Path, place: str, told: str) -> None:
    (path.parent / "a-file").touch()
    result = invoke("init", path.parent / place, "--source", "postgresql://h/d", "--publication", "p")
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_file_that_is_there_is_kept(path: Path, conninfo: str) -> None:
    path.write_text("mine")
    arguments = ("init", path, "--source", conninfo, "--publication", "p", "--destination", "stdout")
    result = invoke(*arguments)
    assert (result.exit_code, path.read_text()) == (2, "mine")
    assert "--force" in result.stderr
    assert invoke(*arguments, "--force").exit_code == 0
    assert load_pipeline_config(path, environ={}).publication_name == "p"


def test_a_source_that_is_away_is_told_and_the_file_written(path: Path, conninfo: str) -> None:
    away = make_conninfo(conninfo, port=1)
    result = invoke("init", path, "--source", away, "--publication", "p")
    assert result.exit_code == 0
    assert "cannot connect to Postgres" in result.stderr
    assert "was not checked" in result.stderr
    assert load_pipeline_config(path, environ={}).id == 1
    path.unlink()
    result = invoke("init", path, "--source", away, "--publication", "p", "--create-publication")
    assert (result.exit_code, path.exists()) == (3, False)


def test_a_role_that_may_not_create_it(path: Path, conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE ROLE init_reader LOGIN PASSWORD 'p'")
    try:
        source = make_conninfo(conninfo, user="init_reader", password="p")
        result = invoke("init", path, "--source", source, "--publication", "p", "--create-publication")
        assert result.exit_code == 4
        assert "cannot create the publication" in result.stderr
        assert not path.exists()
    finally:
        connection.execute("DROP ROLE init_reader")


def test_the_number_is_the_first_whose_slot_is_free(path: Path, conninfo: str, connection: Connection) -> None:
    create_slot(connection, "headrace_1")
    try:
        assert invoke("init", path, "--source", conninfo, "--publication", "p").exit_code == 0
        assert load_pipeline_config(path, environ={}).id == 2
        assert invoke("init", path, "--source", conninfo, "--publication", "p", "--id", 9, "--force").exit_code == 0
        assert load_pipeline_config(path, environ={}).id == 9
    finally:
        drop_slot(connection, "headrace_1")


@pytest.mark.usefixtures("terminal")
def test_by_answers_on_a_terminal(path: Path, conninfo: str, connection: Connection) -> None:
    it = parse_conninfo(conninfo)
    source = make_conninfo("", host=it.host, port=it.port, user=it.username, dbname=it.name)
    answers = [source, "asked_pub", PASSWORD, "y", "orders, Line Items", "iceberg", "/data/lake"]
    result = invoke("init", path, answers="\n".join(answers) + "\n", PGPASSWORD="")
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "publication asked_pub does not exist. The database has: public.Line Items, public.orders" in result.stdout
    assert names(connection, "asked_pub") == ["public.Line Items", "public.orders"]
    config = load_pipeline_config(path, environ={})
    assert config.destination is not None
    assert config.destination.options["warehouse"] == "/data/lake"
    assert PASSWORD not in path.read_text()


@pytest.mark.usefixtures("terminal")
def test_who_says_no_is_told_the_sql(path: Path, conninfo: str, connection: Connection) -> None:
    result = invoke("init", path, "--source", conninfo, "--publication", "p", answers="n\nnull\n")
    assert result.exit_code == 0, result.stderr
    assert 'create it before you run the pipeline: CREATE PUBLICATION "p" FOR ALL TABLES' in result.stdout
    assert connection.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "--source"),
        (("--source", "postgresql://h/d"), "--publication"),
        (("--source", f"postgresql://a:{PASSWORD}@h:port/d", "--publication", "p"), "--source"),
        (
            ("--source", "postgresql://h/d", "--publication", "p", "--destination", "icberg"),
            "there are iceberg, delta",
        ),
        (("--source", "postgresql://h/d", "--publication", "p", "--table", "t"), "--create-publication"),
    ],
)
def test_wrong_usage(path: Path, arguments: tuple[str, ...], told: str) -> None:
    result = invoke("init", path, *arguments)
    assert (result.exit_code, path.exists()) == (2, False)
    assert told in result.stderr


def test_a_directory_that_is_not_there(tmp_path: Path, conninfo: str, connection: Connection) -> None:
    missing = tmp_path / "no" / "such.yaml"
    result = invoke("init", missing, "--source", conninfo, "--publication", "p", "--create-publication")
    assert result.exit_code == 2
    assert "there is no directory" in result.stderr
    assert connection.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
