"""The receiver is killed at random moments under load; afterwards the spool holds exactly what a second slot saw."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psycopg
import pytest

import load
from headrace.config.receiver import ReceiverConfig
from headrace.config.spool import SpoolConfig
from headrace.postgres.conninfo import parse_conninfo
from headrace.replication import ReceiverProcess
from headrace.spool import Spool
from headrace.testing import PostgresServer
from recvlogical import current_lsn, transactions_by_pg_recvlogical, transactions_in_spool

LONGEST_LIFE_S = 0.3


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.long)])
def test_kill_at_any_moment(postgres: PostgresServer, conninfo: str, tmp_path: Path, kills: int) -> None:
    # Given two slots on one publication, transactions small enough to be streamed early, and tiny segments
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(load.SCHEMA)
        connection.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET logical_decoding_work_mem = '64kB'")
        suffix = connection.info.dbname
        for slot in (f"ours_{suffix}", f"oracle_{suffix}"):
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        config = ReceiverConfig(
            pg_connection=parse_conninfo(conninfo),
            publication_name="everything",
            slot_name=f"ours_{suffix}",
            spool=SpoolConfig(uri=str(tmp_path / "spool"), segment_bytes=128 * 1024, segment_age_ms=20),
            status_interval_ms=20,
        )
        chance = random.Random(kills)
        # When the receiver is killed again and again
        with load.running(conninfo):
            for _ in range(kills):
                receiver = ReceiverProcess(config)
                before = receiver.wait(lambda status: status.state == "streaming", 60).spooled
                if chance.random() < 0.7:
                    receiver.wait(lambda status, before=before: status.spooled > before, 60)
                time.sleep(chance.uniform(0, LONGEST_LIFE_S))  # the moment of death is the point here
                receiver.kill()
                # Lets the slot's restart point move, so that the next life does not decode everything from the start.
                connection.execute("CHECKPOINT")
        end = current_lsn(connection)
        with ReceiverProcess(config) as receiver:
            receiver.wait(lambda status: status.covered >= end, 900)
    # Then every committed transaction is there once, message for message
    expected = transactions_by_pg_recvlogical(postgres, conninfo, f"oracle_{suffix}", "everything", end)
    found = transactions_in_spool(Spool.open(config.spool))
    assert found.keys() == expected.keys()
    assert found == expected
    assert sum(map(len, expected.values())) > 10 * kills
