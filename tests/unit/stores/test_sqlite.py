"""SqliteStore: which files it takes, which it refuses and leaves alone, and how migrations run."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from damaging import damaged
from headrace.errors import RetryPolicy, StoreCorrupt, StoreError, StoreIoError, StoreVersionError
from headrace.lsn import Lsn
from headrace.stores import APPLY, PipelineStore, SqliteStore
from headrace.stores.migrations import migrations_of
from headrace.stores.requests import RequestKind, TableRequest
from headrace.stores.sql import Execute
from headrace.stores.sqlite import database
from headrace.stores.sqlite.database import APPLICATION_ID, SqliteDatabase
from headrace.testing.copy_store_suite import example_copy
from headrace.testing.store_suite import A, fill

NOBODY = 65_534


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write everywhere: be someone else, if root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def ask(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def made(path: Path) -> Path:
    """A store with progress in it, closed."""
    with closing(SqliteStore(path, 1)) as store:
        store.update_progress(APPLY, Lsn(5))
    return path


def kept(store: PipelineStore) -> list[object]:
    schemas, metadata = store.get_table_schemas(), store.get_all_destination_metadata()
    return [store.get_table_state_history(A), schemas, metadata, store.get_all_progress()]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteDatabase(path, migrate=True)) as store, pytest.raises(StoreIoError, match="full") as full:
        store.write(1, _fill_up)
    assert full.value.hint.startswith(f"free space on the disk of {path}, or enlarge it (/")


def _fill_up(execute: Execute) -> None:
    execute("PRAGMA max_page_count = 1")
    execute("CREATE TABLE large AS SELECT zeroblob(1000000) AS x")


def test_an_empty_place_becomes_a_store(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    assert ask(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert ask(path, "PRAGMA user_version") == [(7,)]
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]
    assert path.read_bytes()[68:72] == b"HDRC"


def test_an_empty_file_is_taken(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    assert ask(made(tmp_path / "store.db"), "SELECT lsn FROM progress") == [("0000000000000005",)]


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    before = path.read_bytes()
    with closing(SqliteStore(str(path), 1)) as store:
        assert store.get_progress(APPLY) == 5
    assert path.read_bytes() == before


def test_several_may_open_an_empty_place_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda i: SqliteStore(tmp_path / "store.db", i), range(8)))
    reached = [store.update_progress(APPLY, Lsn(i)) for i, store in enumerate(stores)]
    for store in stores:
        store.close()
    assert reached == list(range(8))


def test_a_file_of_the_first_layout_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a store made when there was one migration, with something of everything in it
    with monkeypatch.context() as past:
        past.setattr(database, "migrations_of", lambda package: migrations_of(package)[:1])
        with closing(SqliteStore(tmp_path / "store.db", 1)) as store:
            fill(store, A)
            before = kept(store)
    assert ask(tmp_path / "store.db", "PRAGMA user_version") == [(1,)]
    # When it is opened today
    with closing(SqliteStore(tmp_path / "store.db", 1)) as store:
        # Then all of it is there, and copies are kept too
        assert kept(store) == before
        assert store.get_copy(A) is None
        store.begin_copy(A, example_copy())
        assert store.get_copy(A) == (example_copy(), [])
    assert ask(tmp_path / "store.db", "PRAGMA user_version") == [(7,)]


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    ask(path, "PRAGMA user_version = 99")
    ask(path, "CREATE TABLE of_later_days (a)")
    with pytest.raises(StoreVersionError, match="version 99"):
        SqliteStore(path, 1)
    assert ask(path, "SELECT count(*) FROM progress") == [(1,)]


def test_a_file_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    ask(path, "CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="not a store of headrace"):
        SqliteStore(path, 1)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n" * 100)
    with pytest.raises(StoreCorrupt) as caught:
        SqliteStore(path, 1)
    assert caught.value.detail == "file is not a database"
    assert path.read_text() == "buy milk\n" * 100


@pytest.mark.parametrize("name", ["no/such/directory.db", "."])
def test_a_place_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreIoError) as caught:
        SqliteStore(tmp_path / name, 1)
    assert caught.value.retry is RetryPolicy.TIMED


def test_a_file_that_may_only_be_read() -> None:
    # Not in tmp_path, whose parents are closed to others.
    with tempfile.TemporaryDirectory() as directory:
        path = made(Path(directory) / "store.db")
        path.chmod(0o444)
        path.parent.chmod(0o555)
        with without_privileges(), pytest.raises(StoreIoError) as caught:
            SqliteStore(path, 1).update_progress(APPLY, Lsn(6))
        path.parent.chmod(0o755)
    assert "readonly" in (caught.value.detail or "")
    assert caught.value.retry is RetryPolicy.MANUAL
    assert "writable" in caught.value.hint


def test_a_hanging_writer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    path = made(tmp_path / "store.db")
    with closing(SqliteStore(path, 1)) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreIoError, match="locked"):
            store.update_progress(APPLY, Lsn(6))
        assert store.get_progress(APPLY) == 5
        other.execute("ROLLBACK")
        assert store.update_progress(APPLY, Lsn(6)) == 6


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="is damaged"):
        SqliteStore(path, 1)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20)] + [0])
def test_flipped_bits_and_lost_ends(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "store.db"
    with closing(SqliteStore(path, 1)) as store:
        fill(store, A)
        store.begin_copy(A, example_copy())
        store.acknowledge({A: Lsn(7)})
        store.ask(TableRequest(RequestKind.RESYNC, A))
        whole = everything(store)
    content, refused = path.read_bytes(), 0
    for what, damage in damaged(content, seed, 100, 10):
        path.write_bytes(damage)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        error: StoreError | None = None
        try:
            with closing(SqliteStore(path, 1)) as store:
                found = everything(store)
        except StoreError as caught:
            error, refused = caught, refused + 1
        if error is None:
            # An empty file is a store that has yet to be made.
            assert found == whole or not damage, what
        else:
            assert str(path) in str(error), what
            assert isinstance(error, (StoreCorrupt, StoreVersionError)), what
    assert refused


def everything(store: PipelineStore) -> list[object]:
    return [*kept(store), store.get_copy(A), store.get_acknowledged(), store.get_requests()]


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", 1)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.get_table_states()
