"""Reading a range: batches, snapshots, a caller that is slow or leaves, errors."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from pydantic import SecretStr

from copying import batches_of, published
from headrace.config.connection import PgConnectionConfig, TlsConfig, TlsMode
from headrace.errors import (
    ConfigError,
    SourceAuthenticationFailed,
    SourceConnectionFailed,
    SourceDataError,
    SourceError,
    SourceSchemaError,
    SourceShutdown,
    SourceSnapshotTooOld,
    SourceUnsupported,
)
from headrace.initial_copy.plan import plan_copy
from headrace.initial_copy.ranges import CopyPlan, CopyRange, CtidBounds
from headrace.initial_copy.reader import CopyBatch, copy_columns, read_range
from headrace.postgres.connection import SESSION_SETTINGS, parse_conninfo
from headrace.postgres.snapshots import Snapshot
from headrace.schema import TableName
from headrace.testing import PostgresServer

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[Any]
COPIES = (
    "SELECT {} FROM pg_stat_activity WHERE application_name LIKE 'headrace_copy%%' AND datname = current_database()"
)


@pytest.fixture
def plan(connection: Connection) -> CopyPlan:
    """40 MB in one range."""
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    connection.execute("INSERT INTO t SELECT n, repeat(md5(n::text), 32) FROM generate_series(1, 40000) n")
    return plan_copy(connection, published(connection, "t"))


def awaited(connection: Connection, query: str, until: Callable[[Any], bool]) -> Any:
    for _ in range(1000):
        row = connection.execute(query).fetchone()
        if until(row):
            return row
        connection.execute("SELECT pg_sleep(0.01)")
    pytest.fail(f"never came: {query}")


def test_batches_have_about_the_size_asked_for_and_count_themselves(conninfo: str, plan: CopyPlan) -> None:
    batches = batches_of(conninfo, plan.ranges[0], plan, batch_bytes=1 << 20)
    assert sum(batch.rows.num_rows for batch in batches) == 40_000
    assert 25 < len(batches) <= 41
    assert all(1 << 19 < batch.bytes < 2 << 20 for batch in batches[:-1])
    assert sum(batch.bytes for batch in batches) == sum(len(f"{n},") + 1025 for n in range(1, 40_001))


def test_an_own_snapshot_is_told_with_every_batch(conninfo: str, connection: Connection, plan: CopyPlan) -> None:
    with psycopg.connect(conninfo) as other:
        xid = int(other.execute("SELECT pg_current_xact_id()::text").fetchone()[0])  # type: ignore[index]
        batches = batches_of(conninfo, plan.ranges[0], plan, batch_bytes=8 << 20)
    assert len({batch.snapshot for batch in batches}) == 1
    assert isinstance(batches[0].snapshot, Snapshot)
    assert not batches[0].snapshot.visible(np.array([xid], dtype=np.uint32))[0]
    assert batches[0].snapshot.visible(np.array([xid - 1], dtype=np.uint32))[0]


def test_a_slow_caller_makes_the_server_wait(conninfo: str, connection: Connection, plan: CopyPlan) -> None:
    reading = read_range(parse_conninfo(conninfo), plan.ranges[0], copy_columns(plan.schema), batch_bytes=64 << 10)
    first = next(reading)
    awaited(connection, COPIES.format("max(wait_event)"), lambda row: row == ("ClientWrite",))
    sent = connection.execute("SELECT bytes_processed FROM pg_stat_progress_copy").fetchone()
    assert sent is not None
    assert sent[0] < 20_000_000
    assert first.rows.num_rows + sum(batch.rows.num_rows for batch in reading) == 40_000


@pytest.mark.parametrize("taken", [1, 3])
def test_leaving_early_ends_the_copy_the_thread_and_the_connection(
    conninfo: str, connection: Connection, plan: CopyPlan, taken: int
) -> None:
    reading: Any = read_range(parse_conninfo(conninfo), plan.ranges[0], copy_columns(plan.schema), batch_bytes=64 << 10)
    for _ in range(taken):
        next(reading)
    assert connection.execute(COPIES.format("count(*)")).fetchone() == (1,)
    reading.close()
    assert [thread.name for thread in threading.enumerate() if thread.name == "headrace-copy"] == []
    awaited(connection, COPIES.format("count(*)"), lambda row: row == (0,))


def test_an_iterator_never_started_opens_nothing(conninfo: str, connection: Connection, plan: CopyPlan) -> None:
    reading: Any = read_range(parse_conninfo(conninfo), plan.ranges[0], copy_columns(plan.schema))
    reading.close()
    assert connection.execute(COPIES.format("count(*)")).fetchone() == (0,)


def test_columns_of_another_table_are_refused(conninfo: str, plan: CopyPlan) -> None:
    with pytest.raises(ValueError, match="not those of the range"):
        next(read_range(parse_conninfo(conninfo), plan.ranges[0], copy_columns(plan.schema)[:1]))


def test_the_session_is_like_every_other(conninfo: str, connection: Connection) -> None:
    database = psycopg.sql.Identifier(connection.info.dbname)
    for name, value in (("datestyle", "German"), ("timezone", "Asia/Tokyo"), ("statement_timeout", "1min")):
        connection.execute(
            psycopg.sql.SQL("ALTER DATABASE {} SET {} = {}").format(database, psycopg.sql.SQL(name), value)
        )
    names = [*SESSION_SETTINGS, "statement_timeout", "lock_timeout", "work_mem", "application_name"]
    values = ", ".join(f"current_setting('{name}') AS {name}" for name in names)
    connection.execute(f"CREATE VIEW v AS SELECT {values}")
    connection.execute(f"CREATE TABLE shape ({', '.join(f'{name} text' for name in names)})")
    config = parse_conninfo(conninfo).model_copy(
        update={"parameters": {"options": "-c timezone=Europe/Vienna -c work_mem=5MB", "gssencmode": "disable"}}
    )
    part = CopyRange(TableName("public", "v"), tuple(names))
    columns = copy_columns(published(connection, "shape"))
    (batch,) = read_range(config, part, columns, pipeline=42)
    (got,) = batch.rows.to_pylist()
    assert got.pop("datestyle").startswith("ISO, ")
    more = {"statement_timeout": "0", "lock_timeout": "10s", "work_mem": "5MB", "application_name": "headrace_copy_42"}
    assert got == {**{k: v for k, v in SESSION_SETTINGS.items() if k != "datestyle"}, **more}


def test_a_snapshot_that_is_gone_is_an_error_of_its_own(conninfo: str, plan: CopyPlan) -> None:
    for name in ("00000003-0000001B-1", "no'such"):
        with pytest.raises(SourceSnapshotTooOld, match="no longer held"):
            batches_of(conninfo, plan.ranges[0], plan, snapshot_name=name)


def test_a_dropped_table_and_a_data_error(conninfo: str, connection: Connection, plan: CopyPlan) -> None:
    filtered = CopyRange(TableName("public", "t"), ("id", "pad"), "pad::int > 0")
    with pytest.raises(SourceDataError, match=r"cannot copy public\.t") as caught:
        batches_of(conninfo, filtered, plan)
    assert caught.value.__cause__ is None
    assert "c4ca4238a0b9" not in f"{caught.value} {caught.value!r}"  # the beginning of md5('1')
    assert pickle.loads(pickle.dumps(caught.value)).sqlstate == "22P02"
    connection.execute("DROP TABLE t")
    for bounds in (None, CtidBounds(None, 5)):
        with pytest.raises(SourceSchemaError, match=r'relation "public.t" does not exist'):
            batches_of(conninfo, CopyRange(TableName("public", "t"), ("id", "pad"), bounds=bounds), plan)


def test_a_backend_that_is_ended_is_told_to_the_caller(conninfo: str, connection: Connection, plan: CopyPlan) -> None:
    reading = read_range(parse_conninfo(conninfo), plan.ranges[0], copy_columns(plan.schema), batch_bytes=64 << 10)
    next(reading)
    awaited(connection, COPIES.format("max(wait_event)"), lambda row: row == ("ClientWrite",))
    connection.execute(COPIES.format("pg_terminate_backend(pid)"))
    with pytest.raises((SourceShutdown, SourceConnectionFailed), match="cannot copy"):
        list(reading)


def test_a_standby_has_no_snapshot_of_its_own_to_copy_under(
    connection: Connection, postgres: PostgresServer, plan: CopyPlan
) -> None:
    with postgres.standby() as standby:
        conninfo = standby.conninfo(connection.info.dbname)
        with pytest.raises(SourceUnsupported, match="standby"):
            batches_of(conninfo, plan.ranges[0], plan)


def failing(config: PgConnectionConfig, plan: CopyPlan) -> CopyBatch:
    return next(read_range(config, plan.ranges[0], copy_columns(plan.schema)))


def test_refusals(conninfo: str, plan: CopyPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse_conninfo(conninfo)
    with pytest.raises(SourceAuthenticationFailed) as caught:
        failing(config.model_copy(update={"password": SecretStr("wr0ng-password")}), plan)
    assert "wr0ng-password" not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    with pytest.raises(SourceSchemaError, match="does not exist"):
        failing(config.model_copy(update={"name": "nosuch"}), plan)
    with pytest.raises(SourceConnectionFailed):
        failing(config.model_copy(update={"port": 1}), plan)
    with pytest.raises(ConfigError, match="target_session_attrs"):
        failing(config.model_copy(update={"parameters": {"target_session_attrs": "read-only"}}), plan)
    with pytest.raises(SourceError, match="channel binding"):
        failing(config.model_copy(update={"parameters": {"channel_binding": "require"}}), plan)
    with pytest.raises(SourceConnectionFailed, match="SSL"):
        failing(config.model_copy(update={"tls": TlsConfig(mode=TlsMode.REQUIRE)}), plan)
    assert config.password is not None
    monkeypatch.setenv("PGPASSWORD", config.password.get_secret_value())
    assert failing(config.model_copy(update={"password": None}), plan).rows.num_rows > 0
