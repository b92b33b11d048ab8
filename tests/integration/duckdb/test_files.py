"""A DuckDB file and other processes: who may open it, what a kill leaves, and what is told when it cannot be opened."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckdb_reading import DuckDBFile, duckdb_settings, lake_settings, motherduck_in
from headrace.config.duckdb import DuckDBConfig, DuckLakeConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.errors import ConfigError, DestinationConflict, DestinationError, DestinationRejected
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import Inserted, batch_of, local_rows, transaction

A = example_table(21, "a", {"id": "int8"}, ("id",))
SECRET = "do-not-show-me"

HOLD = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print(connection.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'a'").fetchone()[0], flush=True)
sys.stdin.read()
"""
READ = """
import sys, time, duckdb
deadline = time.monotonic() + 120
while True:
    try:
        with duckdb.connect(sys.argv[1], read_only=True) as connection:
            print(*(row[0] for row in connection.execute("SELECT id FROM public.a ORDER BY id").fetchall()))
            break
    except duckdb.Error:
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""
CHILD = Path(__file__).with_name("writing_child.py")


def opened(destination: DuckDBDestination) -> DuckDBDestination:
    destination.startup(DestinationContext(1, MemoryStore(), None))
    destination.claim()
    return destination


def insert(destination: DuckDBDestination, key: int) -> None:
    destination.write_events(batch_of(transaction(Lsn(100 * key), Inserted(A, {"id": key})), end=Lsn(100 * key + 50)))


@contextmanager
def held(path: Path, how: str) -> Iterator[None]:
    """Another process has the file open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def test_a_file_that_another_process_has(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with held(path, "write"):
        with pytest.raises(DestinationConflict, match="another process has the database open") as raised:
            opened(DuckDBDestination(duckdb_settings(path, lock_timeout_s=0)))
        assert "PID" in str(raised.value)
    destination = opened(DuckDBDestination(duckdb_settings(path, lock_timeout_s=0)))
    destination.shutdown()


def test_others_read_between_batches(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    destination = opened(DuckDBDestination(duckdb_settings(path, release=True, lock_timeout_s=0)))
    destination.write_table_rows(A, local_rows(A, [{"id": 1}]), 0)
    insert(destination, 2)
    # While another reads, a batch is refused; it comes again when the reader is gone
    with held(path, "read"), pytest.raises(DestinationConflict, match="another process"):
        insert(destination, 3)
    insert(destination, 3)
    read = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    assert read.stdout.split() == ["1", "2", "3"]
    destination.shutdown()


def test_a_writer_waits_for_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    destination = opened(DuckDBDestination(duckdb_settings(path, release=True, lock_timeout_s=120)))
    destination.write_table_rows(A, local_rows(A, [{"id": 1}]), 0)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD + "\nimport time; time.sleep(0)", str(path), "read"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdin is not None
        assert reader.stdout.readline()
        reader.stdin.close()
        insert(destination, 2)
    destination.shutdown()
    assert [row["id"] for row in DuckDBFile(path).rows("public.a")] == [1, 2]


def test_a_kill_leaves_whole_batches(tmp_path: Path) -> None:
    """Two tables get a row each with every batch: whatever moment the writer dies at, they have as many."""
    path = tmp_path / "shop.duckdb"
    last = 0
    for life in range(3):
        child = subprocess.Popen([sys.executable, str(CHILD), str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(3 + 4 * life):
            last = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split()
        child.wait()
        child.stdout.close()
        last = int(rest[-1]) if rest else last
        with duckdb.connect(str(path)) as connection:
            counts = connection.execute(
                "SELECT (SELECT count(*) FROM public.a), (SELECT count(*) FROM public.b), "
                "(SELECT max(id) FROM public.a), (SELECT list(DISTINCT lsn) FROM headrace.tables_1)"
            ).fetchone()
        assert counts is not None
        in_a, in_b, highest, lsns = counts
        assert in_a == in_b == highest
        # What was told to be written is there; at most one batch more is.
        assert last <= highest <= last + 1
        assert lsns == [str(Lsn(100 * highest + 50))]
        last = highest


@pytest.mark.parametrize("content", [b"no database", b"x" * 20_000])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shop.duckdb"
    path.write_bytes(content)
    with pytest.raises(DestinationRejected, match="is no database that this version of DuckDB can open") as raised:
        opened(DuckDBDestination(duckdb_settings(path)))
    assert "destination.database" in raised.value.hint
    assert path.read_bytes() == content


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DestinationError, match="file is not there and cannot be made") as raised:
        opened(DuckDBDestination(duckdb_settings(tmp_path / "file" / "shop.duckdb")))
    assert "destination.database" in raised.value.hint
    catalog = {"type": "sqlite", "uri": str(tmp_path / "file" / "below" / "lake.sqlite")}
    with pytest.raises(DestinationError, match="below is not there and cannot be made") as raised:
        opened(DuckDBDestination(lake_settings(tmp_path, catalog=catalog)))
    assert "destination.catalog.uri" in raised.value.hint
    (tmp_path / "directory").mkdir()
    with pytest.raises(DestinationError, match="failed to open the file"):
        opened(DuckDBDestination(duckdb_settings(tmp_path / "directory")))


def test_what_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb_extension_ducklake", None)
    with pytest.raises(ConfigError, match="DuckDB's extension ducklake is not installed") as raised:
        opened(DuckDBDestination(lake_settings(tmp_path)))
    assert "headrace[ducklake]" in raised.value.hint


def test_a_storage_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="storage ftp"):
        opened(DuckDBDestination(lake_settings(tmp_path, data_path="ftp://host/x")))


def test_a_catalog_that_cannot_be_reached_shows_no_secret(tmp_path: Path) -> None:
    catalog = {"type": "postgres", "uri": "host=127.0.0.1 port=1 dbname=lake user=lake", "password": SECRET}
    settings = lake_settings(tmp_path, catalog=catalog)
    assert SECRET not in repr(settings)
    with pytest.raises(DestinationError, match="failed to open the lake with its catalog in Postgres") as raised:
        opened(DuckDBDestination(settings))
    assert SECRET not in f"{raised.value} {raised.value.detail} {raised.value.hint}"


@pytest.mark.parametrize(
    ("model", "settings", "told"),
    [
        (DuckDBConfig, {"database": "md:"}, "without a name"),
        (DuckDBConfig, {"database": "md:shop", "release": True}, "release is for files"),
        (
            DuckLakeConfig,
            {"data_path": "x", "catalog": {"type": "postgres", "uri": f"host=h password={SECRET}"}},
            "belongs into password",
        ),
        (
            DuckLakeConfig,
            {"data_path": "x", "catalog": {"type": "postgres", "uri": f"postgresql://u:{SECRET}@h/lake"}},
            "belongs into password",
        ),
    ],
)
def test_settings_that_contradict(model: type[Any], settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        model.model_validate(settings)
    assert SECRET not in str(raised.value)


class TestMotherDuck:
    """Against a file behind the same interface: a database of one's own name, opened by `md:` and a token."""

    @pytest.fixture
    def connected(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
        monkeypatch.delenv("motherduck_token", raising=False)
        return motherduck_in(tmp_path, SECRET, monkeypatch)

    def test_it_writes_as_to_a_file(
        self, connected: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings = DuckDBConfig.model_validate({"database": "md:shop", "token": SECRET})
        destination = opened(DuckDBDestination(settings))
        destination.write_table_rows(A, local_rows(A, [{"id": 1}]), 0)
        insert(destination, 2)
        assert destination.applied_lsn(A) == Lsn(250)
        destination.shutdown()
        # To see at the start whether it can be reached, and for good when it is claimed.
        assert connected == [{"database": "md:shop", "token": SECRET}] * 2
        monkeypatch.undo()
        assert [row["id"] for row in DuckDBFile(tmp_path / "shop.duckdb").rows("public.a")] == [1, 2]
        assert SECRET not in repr(settings)

    def test_the_token_may_be_in_the_environment(
        self, connected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("motherduck_token", SECRET)
        opened(DuckDBDestination(DuckDBConfig(database="md:shop"))).shutdown()
        assert connected[0]["token"] == SECRET

    def test_a_token_that_is_missing_or_wrong(self, connected: list[dict[str, Any]]) -> None:
        with pytest.raises(ConfigError, match="no access token for the database md:shop") as missing:
            opened(DuckDBDestination(DuckDBConfig(database="md:shop")))
        assert re.search("HEADRACE__DESTINATION__TOKEN", missing.value.hint)
        wrong = DuckDBConfig.model_validate({"database": "md:shop", "token": "a-wrong-one"})
        with pytest.raises(DestinationRejected, match="MotherDuck refused the access token") as refused:
            opened(DuckDBDestination(wrong))
        assert "a-wrong-one" not in f"{refused.value} {refused.value.detail}"
        assert len(connected) == 1
