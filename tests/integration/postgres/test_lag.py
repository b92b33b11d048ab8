"""postgres.lag: bytes and seconds behind, with and without a reader."""

from __future__ import annotations

import struct
import time
from contextlib import closing

import psycopg
import pytest

from headrace.errors import SlotNotFound
from headrace.postgres.connection import connect_replication, parse_conninfo
from headrace.postgres.lag import slot_lag, wal_end
from headrace.postgres.slots import create_slot

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]
SLOT = "lag_slot"


def test_bytes_grow_with_the_wal(connection: Connection, conninfo: str) -> None:
    slot = f"lag_{parse_conninfo(conninfo).name}"
    create_slot(connection, slot)
    before = slot_lag(connection, slot)
    connection.execute("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))")
    after = slot_lag(connection, slot)
    assert after.wal_end - before.wal_end > 1_000_000
    assert before.unconfirmed_bytes is not None
    assert after.unconfirmed_bytes is not None
    assert after.unconfirmed_bytes - before.unconfirmed_bytes == after.wal_end - before.wal_end
    assert after.retained_bytes is not None
    assert after.retained_bytes >= after.unconfirmed_bytes
    assert (after.write_lag_s, after.flush_lag_s, after.replay_lag_s) == (None, None, None)
    assert wal_end(connection) >= after.wal_end


def test_seconds_come_from_the_walsender(connection: Connection, conninfo: str) -> None:
    config = parse_conninfo(conninfo)
    slot = f"lag_{config.name}"
    connection.execute("CREATE TABLE t (id int); CREATE PUBLICATION p FOR TABLE t")
    create_slot(connection, slot)
    with closing(connect_replication(config, "receiver")) as walsender:
        options = "(proto_version '1', publication_names 'p')"
        walsender.pgconn.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 {options}".encode())
        connection.execute("INSERT INTO t VALUES (1)")
        deadline = time.monotonic() + 30
        while slot_lag(connection, slot).flush_lag_s is None:
            assert time.monotonic() < deadline
            nbytes, data = walsender.pgconn.get_copy_data(0)
            if nbytes > 0 and bytes(data)[:1] == b"w":
                (lsn,) = struct.unpack_from(">Q", data, 9)
                walsender.pgconn.put_copy_data(struct.pack(">cQQQQB", b"r", lsn, lsn, lsn, 0, 0))
                walsender.pgconn.flush()
        lag = slot_lag(connection, slot)
    assert lag.flush_lag_s is not None
    assert 0 <= lag.flush_lag_s < 30


def test_a_missing_slot_is_named(connection: Connection) -> None:
    with pytest.raises(SlotNotFound, match="nosuch"):
        slot_lag(connection, "nosuch")
