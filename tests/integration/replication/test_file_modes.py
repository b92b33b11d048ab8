"""Modes of everything a pipeline keeps, under any umask: spool, staging, store with its -wal and -shm."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.config.pipeline import PipelineConfig
from headrace.errors import ConfigError
from headrace.lsn import Lsn
from headrace.pipeline.build import build_store
from headrace.postgres.slots import create_slot
from headrace.stores.records import APPLY
from pipelining import pipeline_config
from receiving import Running
from recvlogical import current_lsn

Connection = psycopg.Connection[Any]


@pytest.fixture(params=[0o000, 0o022], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def config(conninfo: str, connection: Connection, tmp_path: Path) -> PipelineConfig:
    config = configured(conninfo, tmp_path)
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION pub FOR TABLE t")
    create_slot(connection, config.slot_name)
    return config


def configured(conninfo: str, tmp_path: Path, **spool: Any) -> PipelineConfig:
    settings = {"segment_age_ms": 20, "segment_bytes": 65536, **spool}
    return pipeline_config(conninfo, tmp_path, data_dir=tmp_path / "new" / "data", spool=settings)


def modes(config: PipelineConfig, *, directories: bool) -> dict[str, int]:
    """The mode of each directory, or file, at and below data_dir, by its path there."""
    found = [config.data_dir, *config.data_dir.rglob("*")]
    return {
        str(path.relative_to(config.data_dir)): stat.S_IMODE(path.stat().st_mode)
        for path in found
        if path.is_dir() is directories
    }


def work(config: PipelineConfig, connection: Connection, first: int) -> tuple[dict[str, int], dict[str, int]]:
    """Store and receive; the modes of directories and of files."""
    store = build_store(config)
    running = Running(config.receiver_config())
    try:
        store.update_progress(APPLY, Lsn(first))
        running.wait(lambda status: status.state == "streaming")
        connection.execute("INSERT INTO t VALUES (%s, 'x')", (first,))
        end = current_lsn(connection)
        running.wait(lambda status: status.spooled >= end)
        # Given WAL that is not ours: an idle mark covers it
        connection.execute("CREATE TABLE IF NOT EXISTS other (id int); INSERT INTO other VALUES (1)")
        end = current_lsn(connection)
        running.wait(lambda status: status.covered >= end)
        return modes(config, directories=True), modes(config, directories=False)
    finally:
        running.stop()
        store.close()


@pytest.mark.usefixtures("umask")
def test_nobody_else_may_read(config: PipelineConfig, connection: Connection) -> None:
    directories, files = work(config, connection, 1)
    assert directories == dict.fromkeys([".", "pipeline-1", "pipeline-1/spool", "pipeline-1/spool/staging"], 0o700)
    assert set(files.values()) == {0o600}
    names = {Path(name).name for name in files}
    assert {"store.db", "store.db-wal", "store.db-shm", "owner.json", "lock"} <= names
    assert {Path(name).suffix for name in files} >= {".arrow", ".idle"}


@pytest.mark.usefixtures("umask")
def test_what_an_earlier_version_left_is_tightened(config: PipelineConfig, connection: Connection) -> None:
    work(config, connection, 1)
    for path in (config.data_dir, *config.data_dir.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    directories, files = work(config, connection, 2)
    assert set(directories.values()) == {0o700}
    assert set(files.values()) == {0o600}


@pytest.mark.usefixtures("umask")
def test_a_group_may_read_the_spool_alone(conninfo: str, config: PipelineConfig, connection: Connection) -> None:
    shared = configured(conninfo, config.data_dir.parents[1], group=str(os.getgid()))
    directories, files = work(shared, connection, 1)
    assert directories == {
        ".": 0o710,
        "pipeline-1": 0o710,
        "pipeline-1/spool": 0o750,
        "pipeline-1/spool/staging": 0o700,
    }
    assert {mode for name, mode in files.items() if "/spool/" in name and not name.endswith("/lock")} == {0o640}
    assert {mode for name, mode in files.items() if "store.db" in name} == {0o600}


@pytest.mark.parametrize("wrong", [0o770, 0o777])
def test_a_spool_that_others_can_write_to_is_refused(
    config: PipelineConfig, connection: Connection, wrong: int
) -> None:
    work(config, connection, 1)
    spool = config.directory / "spool"
    spool.chmod(wrong)
    running = Running(config.receiver_config())
    error = running.ended()
    assert isinstance(error, ConfigError)
    assert str(spool) in str(error)
    assert "chmod" in error.hint
    spool.chmod(wrong & ~0o022)
    work(config, connection, 2)
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700
