"""The code in the documents runs: every block of it that another test does not run already."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession

from docs_blocks import PAGES, ROOT, blocks, run, write_modules
from headrace.cli.main import app
from headrace.config.iceberg import IcebergConfig
from headrace.config.load import destination_settings, load_pipeline_config
from headrace.config.pipeline import PipelineMode
from headrace.config.spool import SpoolConfig
from headrace.destinations import MemoryDestination
from headrace.destinations.iceberg.catalog import catalog_packages
from headrace.errors import ConfigError
from headrace.pipeline import Pipeline
from headrace.pipeline.build import build_destination
from headrace.postgres.connection import connect, parse_conninfo
from headrace.postgres.preflight import Severity, Target, run_checks
from headrace.postgres.publications import published_tables
from headrace.postgres.slots import create_slot, drop_slot
from headrace.spark.settings import FASTER
from headrace.spool import SegmentIndex, Spool
from headrace.stores import MemoryStore, SqliteStore
from headrace.table_state import State
from headrace.testing.faulty_destination import FaultyDestination
from headrace.testing.postgres import PostgresServer
from pipelining import piped, pipeline_config

HEAD = "id: 1\npublication_name: p\npg_connection: {host: db, name: shop, username: u}\n"
ADDRESS = '"postgresql://replicator@db.example.com/shop"'
ORDERS = """
    CREATE TABLE orders (id bigint PRIMARY KEY, item text);
    INSERT INTO orders VALUES (1, 'kettle'), (2, 'teapot');
    CREATE PUBLICATION pub FOR TABLE orders;
"""
# Tested there, as a whole: from the SQL to the output.
ELSEWHERE = {
    "SECURITY.md": "sql",
    "docs/concepts/delivery.md": "sql python",
    "docs/destinations/delta.md": "python ini",
    "docs/destinations/duckdb.md": "python",
    "docs/destinations/ducklake.md": "python",
    "docs/destinations/parquet.md": "python sql",
    "docs/guides/build-a-destination.md": "python bash",
    "docs/guides/first-pipeline.md": "sql bash python",
    "docs/guides/first-python-pipeline.md": "sql python",
    "docs/guides/transforms.md": "python",
}
HERE = {
    "docs/concepts/destinations.md": "python",
    "docs/concepts/initial-copy.md": "python",
    "docs/concepts/replication.md": "sql",
    "docs/concepts/spool.md": "json python",
    "docs/concepts/stores.md": "python",
    "docs/destinations/iceberg.md": "python ini bash",
    "docs/guides/configure-postgres.md": "sql",
    "docs/guides/python.md": "python",
}
# What only shows something: output, a picture. YAML is loaded wherever it stands, commands are parsed.
NOT_CODE = {"console", "text", "mermaid", "yaml", ""}
COMMAND = re.compile(r"^(?:    |\$ )(?:[A-Z_]+=\S+ )*(headrace (?!.*\[OPTIONS\]).*)$", re.MULTILINE)


def test_every_block_of_code_is_run_somewhere() -> None:
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for language in re.findall(r"^```(\S*)\n.*?^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            if language not in NOT_CODE:
                found.setdefault(str(page.relative_to(ROOT)), set()).add(language)
    assert found == {page: set(languages.split()) for page, languages in {**ELSEWHERE, **HERE}.items()}


def test_what_is_shown_as_text_is_no_code() -> None:
    for page in PAGES:
        for block in blocks(str(page.relative_to(ROOT)), "text"):
            assert not re.search(r"^(\$|>>>) ", block, re.MULTILINE), page


def test_every_command_line_is_one_that_there_is() -> None:
    found = 0
    for page in PAGES:
        for line in COMMAND.findall(page.read_text(encoding="utf-8")):
            # Up to where the shell takes over: a pipe, a redirection, the next command.
            words = shlex.split(re.split(r"\s(?:\||&&|2?>)", line)[0], comments=True)[1:]
            command = typer.main.get_command(app)
            while hasattr(command, "commands"):
                assert command.commands.keys() & set(words[:1]), f"{page}: {line}"
                command = command.commands[words.pop(0)]
            # It raises for options that are not known, and for arguments that are missing or too many.
            command.make_context(line, words)
            found += 1
    assert found > 40


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(str(page.relative_to(ROOT)), "yaml"))
    ],
)
def test_a_configuration_loads(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_modules("docs/guides/build-a-destination.md", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "pipeline.yaml"
    file.write_text(block if "publication_name" in block else HEAD + block, encoding="utf-8")
    config = load_pipeline_config(file, {})
    if config.destination is not None:
        destination_settings(config.destination)


@pytest.mark.spark
def test_the_pipeline_of_the_python_guide(conninfo: str, connection: psycopg.Connection[Any], tmp_path: Path) -> None:
    """A script that runs until Ctrl-C, and ends in order."""
    connection.execute(ORDERS.replace("pub ", "shop_pub "))
    script = blocks("docs/guides/python.md", "python")[0]
    assert script.count(ADDRESS) == 1
    (tmp_path / "guide.py").write_text(script.replace(ADDRESS, repr(conninfo)), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "guide.py"], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        printed = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(120) == 0
    assert "kettle" in str(printed)
    assert (tmp_path / "shop.db").exists()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory where a reader tries things."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_parts_of_the_python_guide(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: SparkSession,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    connection.execute(ORDERS)
    it = conninfo_to_dict(conninfo)
    settings = {"host": it["host"], "port": it["port"], "name": it["dbname"], "username": it["user"]}
    given = {"id": 1, "publication_name": "pub", "pg_connection": settings, "slot_name": f"slot_{it['dbname']}",
             "destination": {"kind": "memory"}, "spark": {"master": "local[2]"}}  # fmt: skip
    (here / "headrace.yaml").write_text(json.dumps(given), encoding="utf-8")
    monkeypatch.setenv("HEADRACE__PG_CONNECTION__PASSWORD", str(it["password"]))
    _, load, build, adopt, builder, status, mend, prometheus = blocks("docs/guides/python.md", "python")

    names = run(load, {})
    assert names["config"].mode is PipelineMode.COPY_ONLY
    names = run(prometheus, names)
    assert names["config"].metrics.enabled
    names["config"] = load_pipeline_config(Path("headrace.yaml"))
    names = run(build, names)
    assert isinstance(names["store"], SqliteStore)
    failing = {"public.orders"}

    def fail(method: str, table: str | None) -> None:
        if method == "write_events" and table in failing:
            raise ConfigError("it is full", hint="make room")

    names |= {"destination": FaultyDestination(names["destination"], fail), "spark": spark, "Pipeline": Pipeline}
    pipeline = run(adopt, names)["pipeline"]

    def until(state: State) -> None:
        while [table.state.state for table in pipeline.status.tables.values()] != [state]:
            pipeline.wait(0.05)

    with pipeline:
        pipeline.start()
        until(State.READY)
        connection.execute("INSERT INTO orders VALUES (3, 'pot')")
        until(State.ERRORED)
        run(status, names)
        assert "public.orders errored" in capsys.readouterr().out
        failing.clear()
        run(mend, names)
        until(State.READY)
    pipeline.wait(60)
    names["store"].close()

    options = run(builder, {"builder": SparkSession.Builder()})["builder"]._options
    assert options == FASTER


def test_the_iceberg_page(conninfo: str, connection: psycopg.Connection[Any], spark: SparkSession, here: Path) -> None:
    """Written as the first block says, read as the others do."""
    connection.execute(ORDERS)
    (here / "pipeline.yaml").write_text(HEAD + blocks("docs/destinations/iceberg.md", "yaml")[0], encoding="utf-8")
    destination = load_pipeline_config(here / "pipeline.yaml", {}).destination
    config = pipeline_config(conninfo, here / "data", destination=destination, mode="copy_only")
    with Pipeline(config, MemoryStore(), build_destination(config), spark=spark) as pipeline:
        pipeline.start()
        assert pipeline.wait(300)
    # With pyiceberg
    read, drop = blocks("docs/destinations/iceberg.md", "python")
    names = run(read, {})
    expected = [(1, "kettle"), (2, "teapot")]
    assert sorted((row["id"], row["item"]) for row in names["rows"].to_pylist()) == expected
    names["catalog"].close()
    # With Spark; its Java was started in another directory
    page = (ROOT / "docs/destinations/iceberg.md").read_text(encoding="utf-8")
    (ini,) = blocks("docs/destinations/iceberg.md", "ini")
    options = dict(line.split(maxsplit=1) for line in ini.replace(" warehouse", f" {here}/warehouse").splitlines())
    assert options.pop("spark.jars.packages").split(",") == list(catalog_packages(IcebergConfig(warehouse="w")))
    session = spark.newSession()
    for name, value in options.items():
        session.conf.set(name, value.replace("sqlite:warehouse", f"sqlite:{here}/warehouse"))
    (query,) = re.findall(r"`(SELECT [^`]+)`", page)
    assert sorted(tuple(row) for row in session.sql(query).collect()) == expected
    # And after a power loss
    catalog = run(drop, {})["catalog"]
    assert catalog.list_tables("public") == []
    catalog.close()


def test_the_secrets_of_the_iceberg_page(tmp_path: Path) -> None:
    (export,) = blocks("docs/destinations/iceberg.md", "bash")
    shown = subprocess.run(["bash", "-euc", f"{export}env -0"], capture_output=True, text=True, check=True).stdout
    environment = dict(line.split("=", 1) for line in shown.split("\0") if line.startswith("HEADRACE__"))
    (tmp_path / "pipeline.yaml").write_text(HEAD + blocks("docs/destinations/iceberg.md", "yaml")[1], encoding="utf-8")
    destination = load_pipeline_config(tmp_path / "pipeline.yaml", environment).destination
    assert destination is not None
    settings = destination_settings(destination)
    assert isinstance(settings, IcebergConfig)
    assert set(settings.catalog.secrets) == {"s3.access-key-id", "s3.secret-access-key"}


def test_the_destination_of_the_page_and_the_spool_that_it_leaves(
    conninfo: str, connection: psycopg.Connection[Any], spark: SparkSession, here: Path
) -> None:
    connection.execute(ORDERS)
    own, suite = blocks("docs/concepts/destinations.md", "python")
    destination = run(own, {})["CountingDestination"]()
    config = pipeline_config(conninfo, here / "data")
    with piped(config, MemoryStore(), destination, spark) as pipeline:
        pipeline.until_ready()
        position = pipeline.status.tables["public.orders"].position
        connection.execute("INSERT INTO orders VALUES (3, 'pot'), (4, 'pan')")
        # Begin and Commit are events too.
        pipeline.until(lambda: destination.events == 4)
    # The spool can be read without a pipeline.
    (here / "spool").symlink_to(config.spool_config().uri)
    (read,) = blocks("docs/concepts/spool.md", "python")
    names = run(read, {"Spool": Spool, "SpoolConfig": SpoolConfig, "position": position})
    assert b"pan" in bytes(names["batch"].data)
    (index,) = blocks("docs/concepts/spool.md", "json")
    assert SegmentIndex.decode(index.encode()).tables[16385].rows == 1200
    assert run(suite, {"MyDestination": MemoryDestination})["TestMyDestination"]()


def test_what_a_slot_keeps_is_shown(connection: psycopg.Connection[Any]) -> None:
    name = f"shown_{connection.info.dbname}"
    create_slot(connection, name)
    try:
        (query,) = blocks("docs/concepts/replication.md", "sql")
        (row,) = [row for row in connection.execute(query.encode()).fetchall() if row[0] == name]
        assert row[1:3] == (False, "reserved")
        assert row[4].endswith(("bytes", "kB", "MB"))
    finally:
        drop_slot(connection, name)


def test_the_suite_of_stores_can_be_taken_up() -> None:
    (suite,) = blocks("docs/concepts/stores.md", "python")
    tests = run(suite, {"MyStore": SqliteStore})["TestMyStore"]()
    assert len([name for name in dir(tests) if name.startswith("test_")]) > 20


def test_a_table_is_read_in_ranges_by_hand(conninfo: str, connection: psycopg.Connection[Any]) -> None:
    connection.execute(ORDERS)
    config = parse_conninfo(conninfo)
    (schema,) = published_tables(connection, "pub")
    (code,) = blocks("docs/concepts/initial-copy.md", "python")
    names = run(code, {"config": config, "schema": schema})
    assert names["batch"].rows.to_pydict() == {"id": [1, 2], "item": ["kettle", "teapot"]}


def test_a_server_is_configured_as_the_page_says() -> None:
    settings, role, publication, slot = blocks("docs/guides/configure-postgres.md", "sql")
    with PostgresServer() as server:
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            for statement in settings.splitlines():
                connection.execute(statement.partition(" --")[0])
        server.restart()
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE customers (id int PRIMARY KEY)")
            for statement in (role, publication, slot):
                connection.execute(statement)
        where = parse_conninfo(make_conninfo(server.conninfo(), user="replicator", password="…"))
        with connect(where, "check") as connection:
            found = run_checks(connection, Target(where, "shop_pub"))
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []
