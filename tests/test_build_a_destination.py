"""The guide "Build a destination": its examples run, against a real Postgres and a server that receives."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from docs_blocks import blocks, run, write_modules
from headrace.config.load import load_pipeline_config
from headrace.destinations.around import Around
from headrace.errors import ConfigError
from headrace.pipeline.build import build_destination
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import piped, pipeline_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.destinations import Destination
    from headrace.schema import TableName

GUIDE = "docs/guides/build-a-destination.md"
TABLE = """
    CREATE TABLE orders (id bigint PRIMARY KEY, item text);
    INSERT INTO orders VALUES (1, 'kettle'), (2, 'teapot');
    CREATE PUBLICATION pub FOR TABLE orders;
"""
CHANGES = (
    "INSERT INTO orders VALUES (3, 'pot')",
    "UPDATE orders SET item = 'pan' WHERE id = 1",
    "DELETE FROM orders WHERE id = 2",
)


class Receiver(HTTPServer):
    """Takes what is POSTed; `answers` are codes to refuse with before that."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[int] = []
        self.tokens: set[str | None] = set()
        self.lines: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/events"

    def changes(self) -> list[tuple[str, int]]:
        """Each change once, whatever came again, as kind and id."""
        kinds = ("insert", "update", "delete")
        found = {(e["commit_lsn"], e["tx_ordinal"]): e for e in self.lines if e["kind"] in kinds}
        return [(e["kind"], (e.get("row") or e["old"])["id"]) for e in found.values()]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tokens.add(self.headers.get("Authorization"))
        code = self.server.answers.pop(0) if self.server.answers else 204
        if code == 204:
            self.server.lines += [json.loads(line) for line in body.splitlines()]
        self.send_response(code)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guide's files, importable."""
    directory = tmp_path / "modules"
    write_modules(GUIDE, directory)
    monkeypatch.syspath_prepend(directory)
    return directory


def built(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Destination:
    file = tmp_path / "pipeline.yaml"
    head = "id: 1\npublication_name: p\npg_connection: {host: db, name: shop, username: u}\n"
    file.write_text(head + text, encoding="utf-8")
    return build_destination(load_pipeline_config(file, environ or {}))


def test_events_over_http(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: SparkSession,
    tmp_path: Path,
    modules: Path,
    receiver: Receiver,
) -> None:
    connection.execute(TABLE)
    (text,) = blocks(GUIDE, "yaml")
    text = text.replace("http://127.0.0.1:8080/events", receiver.url)
    destination = built(tmp_path, text, {"HEADRACE__DESTINATION__TOKEN": "letmein"})
    receiver.answers = [503]
    with piped(pipeline_config(conninfo, tmp_path / "data"), MemoryStore(), destination, spark) as pipeline:
        pipeline.until_ready()
        assert sorted(e["row"]["id"] for e in receiver.lines if e["kind"] == "row") == [1, 2]
        receiver.answers = [503, 500]
        for statement in CHANGES:
            connection.execute(statement)
        pipeline.until(lambda: len(receiver.changes()) == len(CHANGES))
        assert receiver.changes() == [("insert", 3), ("update", 1), ("delete", 2)]
    assert receiver.tokens == {"Bearer letmein"}
    assert "letmein" not in repr(vars(destination))


def test_a_receiver_that_refuses_stops_the_pipeline(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: SparkSession,
    tmp_path: Path,
    modules: Path,
    receiver: Receiver,
) -> None:
    connection.execute(TABLE)
    text = f"destination: {{kind: 'http_destination:HttpDestination', url: '{receiver.url}'}}"
    receiver.answers = [401]
    store = MemoryStore()
    with piped(
        pipeline_config(conninfo, tmp_path / "data"), store, built(tmp_path, text), spark
    ) as pipeline:  # fmt: skip
        pipeline.until(lambda: State.ERRORED in pipeline.states().values())
        (table,) = pipeline.status.tables.values()
        assert "the receiver answered 401" in (table.state.reason or "")


def test_changes_as_json_files_each_once(
    conninfo: str, connection: psycopg.Connection[Any], spark: SparkSession, tmp_path: Path, modules: Path
) -> None:
    connection.execute(TABLE)
    text = f"destination: {{kind: 'json_files:JsonFilesDestination', path: '{tmp_path}/lake'}}"
    config, store = pipeline_config(conninfo, tmp_path / "data"), MemoryStore()
    failing = ["write_events"]

    def losing_an_answer(method: str, table: TableName | None, call: Callable[[], Any]) -> Any:
        result = call()
        if method in failing:
            failing.remove(method)
            raise OSError("the answer is lost")
        return result

    for number, statement in enumerate(CHANGES, 1):
        # Each in a life of its own; the first is written, and its answer lost.
        destination = Around(built(tmp_path, text), losing_an_answer)
        with piped(config, store, destination, spark) as pipeline:
            pipeline.until_ready()
            connection.execute(statement)
            pipeline.until(lambda number=number: len(_changes(tmp_path / "lake")) == number)
    assert failing == []
    assert _changes(tmp_path / "lake") == [("I", 3), ("U", 1), ("D", 2)]
    assert sorted(row["id"] for row in _lines(tmp_path / "lake", "copy-*")) == [1, 2]


def _changes(lake: Path) -> list[tuple[str, int]]:
    lines = sorted(_lines(lake, "changes-*"), key=lambda change: (change["commit_lsn"], change["tx_ordinal"]))
    return [(change["op"], (change.get("row") or change["old"])["id"]) for change in lines]


def _lines(lake: Path, directories: str) -> list[dict[str, Any]]:
    files = lake.glob(f"*/{directories}/*.json")
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_store_that_calls_somebody(
    conninfo: str, connection: psycopg.Connection[Any], spark: SparkSession, tmp_path: Path
) -> None:
    connection.execute(TABLE)
    names: dict[str, Any] = {}
    for block in blocks(GUIDE, "python"):
        if "class AlertingStore(" in block:
            run(block, names)
    alerts: list[tuple[int, str, str]] = []
    config = pipeline_config(conninfo, tmp_path / "data")
    store = names["AlertingStore"](tmp_path / "store.db", config.id, lambda *told: alerts.append(told))

    def refuse(method: str, table: str | None) -> None:
        if method == "write_table_rows":
            raise ConfigError("it is full", hint="make room")

    from headrace.destinations import MemoryDestination

    destination = FaultyDestination(MemoryDestination(), refuse)
    with piped(config, store, destination, spark) as pipeline:
        pipeline.until(lambda: bool(alerts))
    store.close()
    assert [(reason, solution) for _, reason, solution in alerts] == [("it is full", "make room")]


def test_the_store_of_the_guide_passes_the_suites(tmp_path: Path) -> None:
    write_modules(GUIDE, tmp_path)
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_alerting_store.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tests.returncode == 0, tests.stdout[-3000:]
    assert int(tests.stdout.split(" passed")[0].split()[-1]) > 40


def test_a_new_package_passes_its_tests(tmp_path: Path) -> None:
    (command,) = blocks(GUIDE, "bash")
    program, *arguments = command.split()
    assert program == "headrace"
    run_it = [str(Path(sys.executable).with_name(program)), *arguments]
    made = subprocess.run(run_it, cwd=tmp_path, capture_output=True, text=True, check=True)
    package = tmp_path / "headrace-my-queue"
    assert str(Path("headrace-my-queue") / "pyproject.toml") in made.stdout
    again = subprocess.run(run_it, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (again.returncode, "exists" in again.stderr) == (2, True)
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=package, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tests.returncode == 0, tests.stdout[-3000:]
    assert " passed" in tests.stdout


@pytest.mark.parametrize("name", ["My-Queue", "class", "1st", "", "a b"])
def test_a_name_that_no_package_can_have(name: str, tmp_path: Path) -> None:
    from headrace.scaffold import NewPackage

    with pytest.raises(ConfigError, match="cannot be the name"):
        NewPackage(name)
    assert not list(tmp_path.iterdir())


def test_the_gap_of_the_guide_is_declared() -> None:
    (code,) = [block for block in blocks(GUIDE, "python") if "gaps" in block]
    suite = run(code, {})["TestMyQueue"]
    (name,) = suite.gaps
    (mark,) = [mark for mark in getattr(suite, name).pytestmark if mark.name == "xfail"]
    assert mark.kwargs["strict"]
    assert "a queue forgets nothing" in mark.kwargs["reason"]
