"""The demo's Postgres starts, stops and leaves no process, wherever its directory lies."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from headrace.demo.directory import SERVER, claimed
from headrace.demo.interrupts import Interrupted, Interrupts
from headrace.demo.server import DemoServer
from headrace.errors import SourceError


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that other users can look into; they never can into tmp_path."""
    path = Path(tempfile.mkdtemp(prefix="headrace-test-demo-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def running(home: Path) -> list[int]:
    """Servers of that home."""
    data = str(home.resolve() / "data")
    return [p.pid for p in psutil.process_iter(["name", "cmdline"]) if data in (p.info["cmdline"] or [])]


def one(connection: psycopg.Connection[tuple[object, ...]], query: str) -> object:
    row = connection.execute(query).fetchone()  # type: ignore[call-overload]
    assert row is not None
    return row[0]


def test_it_runs_within_its_block_and_again_in_the_same_directory(open_place: Path) -> None:
    for _ in range(2):
        with claimed(open_place / "demo") as directory:
            home = directory / SERVER
            with DemoServer(home, Interrupts()) as server:
                with psycopg.connect(server.conninfo()) as connection:
                    assert str(one(connection, "SHOW server_version")).startswith("18.")
                    assert one(connection, "SHOW wal_level") == "logical"
                    assert one(connection, "SHOW listen_addresses") == "127.0.0.1"
                with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                    psycopg.connect(server.conninfo().replace("password=", "password=x"))
                assert running(home)
            assert not running(home)
            server.stop()


def test_it_runs_where_other_users_cannot_look(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with DemoServer(tmp_path / "home", Interrupts()) as server:
        place = server.home.resolve()
        with psycopg.connect(server.conninfo()) as connection:
            assert Path(str(one(connection, "SHOW data_directory"))) == place / "data"
    assert not running(place)
    assert place == tmp_path / "home" or not place.exists()


def test_a_demo_that_was_killed_leaves_a_server_that_the_next_one_ends(tmp_path: Path) -> None:
    with claimed(tmp_path / "demo") as directory:
        home = directory / SERVER
        server = DemoServer(home, Interrupts())
        server.start()
    real = home.resolve()
    assert running(real)
    with claimed(tmp_path / "demo"):
        assert not running(real)
        assert not real.exists()
    server.stop()


def test_a_signal_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    interrupts = Interrupts()
    interrupts.ask()
    server = DemoServer(tmp_path / "home", interrupts)
    with pytest.raises(Interrupted), server:
        pytest.fail("entered")
    assert not running(tmp_path / "home")


def test_a_server_that_does_not_start_says_why(open_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.demo.server.SETTINGS", {"wal_level": "psychic"})
    with (
        pytest.raises(SourceError, match=r"did not start.*wal_level") as caught,
        DemoServer(open_place / "home", Interrupts()),
    ):
        pytest.fail("entered")
    assert caught.value.hint
