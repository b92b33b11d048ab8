"""A minute in which the destination takes nothing of one table, under load: what it costs the others and the source."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from busy_source import TABLES, busy, create_tables
from failing import Failures
from headrace.errors import DestinationConnectionFailed
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import Piped, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

ITEMS, OTHERS = "public.items", tuple(f"public.{name}" for name in TABLES if name != "items")


def lag_of_others(running: Piped, connection: Connection) -> float:
    """Seconds until what is committed now is durable for all tables but the one."""
    row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    end, started = Lsn.parse(row[0]), time.monotonic()
    running.until(lambda: running.status.receiver.spooled >= end)
    running.until(lambda: min(running.status.tables[name].position for name in OTHERS) >= end)
    return time.monotonic() - started


def retained(connection: Connection) -> int:
    # Decoding moves a slot's restart_lsn when it meets a record of the running transactions, as checkpoints write it.
    connection.execute("CHECKPOINT")
    query = "SELECT pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots WHERE database = current_database()"
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.long
def test_a_table_that_fails_for_a_minute(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    create_tables(connection, 2000)
    durable, failures = DurableDestination(tmp_path / "destination.db"), Failures()
    config = pipeline_config(conninfo, tmp_path, table_error_retry_max_attempts=100)
    with contextlib.ExitStack() as source:
        load = source.enter_context(busy(conninfo))
        with piped(config, MemoryStore(), FaultyDestination(durable, failures), spark) as running:
            running.until_ready(timeout=120)
            usual = [lag_of_others(running, connection) for _ in range(10)]
            began = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
            failures.begin("write_events", ITEMS, lambda: DestinationConnectionFailed("away"))
            running.until(lambda: running.states()[ITEMS] is State.ERRORED)
            lags, kept = [], []
            minute = time.monotonic() + 60
            while time.monotonic() < minute:
                lags.append(lag_of_others(running, connection))
                kept.append(retained(connection))
                states = running.states()
                assert states[ITEMS] in (State.ERRORED, State.CATCHUP)
                assert {states[name] for name in OTHERS} == {State.READY}
            written = connection.execute("SELECT pg_current_wal_lsn() - %s::pg_lsn", began).fetchone()
            failures.end("write_events", ITEMS)
            running.until_ready(timeout=240)
            load.wait_more(40)
            source.close()
            wait_equal(running, connection, durable, ITEMS, *OTHERS, timeout=120)
            assert running.status.tables[ITEMS].attempts == 0
    assert written is not None
    print(
        f"lag of the others: usually {max(usual):.2f} s at most, {max(lags):.2f} s while the table failed;\n"
        f"WAL written meanwhile {int(written[0]) >> 10} KiB, retained {kept[0] >> 10} KiB at first, "
        f"{kept[-1] >> 10} KiB at the end"
    )
    assert kept[-1] < int(written[0]) / 2
    places = [(change.commit_lsn, change.tx_ordinal) for change in durable.change_log(ITEMS)]
    assert len(places) == len(set(places)) > 0
