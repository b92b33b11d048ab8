"""SqliteStore under kill -9: what was acknowledged is there, what was not is there whole or not at all."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from headrace.stores import APPLY, SqliteStore, Worker
from headrace.table_state import State

# Every round moves two tables together and stores a schema and progress; a line on stdout acknowledges each write.
WRITER = """
import sys
from headrace.errors import RetryPolicy
from headrace.lsn import Lsn
from headrace.stores import APPLY, SqliteStore, Worker
from headrace.table_state import State, TableState
from headrace.testing.store_suite import example_schema

store = SqliteStore(sys.argv[1], 1)
if not store.get_table_states():
    store.update_table_states({1: TableState(State.INIT), 2: TableState(State.INIT)})
lsn = store.get_progress(APPLY) or 0
while True:
    lsn += 1
    failed = TableState(State.ERRORED, reason=str(lsn), retry_policy=RetryPolicy.TIMED)
    store.update_table_states({1: failed, 2: failed})
    store.store_table_schema(example_schema(1), Lsn(lsn))
    store.update_progress(Worker(1), Lsn(lsn))
    store.update_progress(APPLY, Lsn(lsn))
    store.prune_table_schemas({1: Lsn(max(lsn - 5, 0))})
    print(lsn, flush=True)
"""
KILLS = 8


def write_until_killed(path: Path, rounds: int) -> int:
    """Let a writer acknowledge some rounds and kill it in the middle of the next; returns the last LSN it told of."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(rounds)]
        writer.kill()
        # What it said between the last line read and its end counts too; a line cut short does not.
        told += [line for line in writer.stdout if line.endswith("\n")]
        assert writer.wait() == -9
    return int(told[-1])


def check(path: Path, told: int) -> None:
    """Everything is at the round told of, or partly at the one that was under way, in the order of the writes."""
    with closing(SqliteStore(path, 1)) as store:
        states = store.get_table_states()
        assert states[1] == states[2]
        assert states[1].state is State.ERRORED
        reached = [
            int(states[1].reason or 0),
            int(store.get_table_schemas()[-1].snapshot_lsn),
            int(store.get_progress(Worker(1)) or 0),
            int(store.get_progress(APPLY) or 0),
        ]
    assert reached == sorted(reached, reverse=True)
    assert set(reached) <= {told, told + 1}


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    path, dice, last = tmp_path / "store.db", random.Random(7), 0
    for _ in range(KILLS):
        rounds = dice.randint(5, 60)
        told = write_until_killed(path, rounds)
        assert told >= last + rounds
        check(path, told)
        last = told
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
