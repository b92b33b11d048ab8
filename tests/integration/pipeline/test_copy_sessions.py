"""Connections of copies: used again, closed when idle, never used again after an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.pipeline.copy_sessions import CopySessions
from pipelining import pipeline_config

Connection = psycopg.Connection[Any]


@pytest.fixture
def sessions(conninfo: str, tmp_path: Path) -> CopySessions:
    return CopySessions(pipeline_config(conninfo, tmp_path))


def open_now(connection: Connection) -> set[int]:
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'headrace_snapshot_1' AND datname = %s"
    return {pid for (pid,) in connection.execute(query, (connection.info.dbname,)).fetchall()}


def until_open(connection: Connection, count: int) -> None:
    # A server process outlives its connection for a moment.
    for _ in range(500):
        if len(open_now(connection)) == count:
            return
        connection.execute("SELECT pg_sleep(0.01)")
    pytest.fail(f"open: {open_now(connection)}, not {count}")


def test_one_after_the_other_they_share_a_connection(sessions: CopySessions, connection: Connection) -> None:
    with sessions.lent() as one:
        one.execute("BEGIN")
        one.execute("SET LOCAL statement_timeout = 77")
    with sessions.lent() as two:
        assert two is one
        assert two.execute("SHOW statement_timeout").fetchone() == ("0",)
        with sessions.lent() as three:
            assert three is not two
    until_open(connection, 2)
    sessions.close_idle(100)
    until_open(connection, 2)
    sessions.close_idle(0)
    until_open(connection, 0)


def test_one_that_failed_or_was_cut_off_is_not_used_again(sessions: CopySessions, connection: Connection) -> None:
    with pytest.raises(psycopg.Error), sessions.lent() as failed:
        failed.execute("SELECT 1 / 0")
    assert failed.closed
    with sessions.lent() as cut_off:
        pid = cut_off.info.backend_pid
    connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    with sessions.lent() as fresh:
        assert fresh.execute("SELECT 1").fetchone() == (1,)
        assert fresh is not cut_off
    sessions.close_idle(0)
    until_open(connection, 0)
