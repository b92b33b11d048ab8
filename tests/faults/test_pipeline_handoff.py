"""Hand-off under fire: tables are copied while writers change them in every way, and equal the source afterwards.

The writers overlap the copies for real: at points within a copy the pipeline waits until they have made more
transactions, and the test counts what the hand-off let pass and what it held back.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from busy_source import TABLES, Load, busy, create_tables
from headrace.initial_copy.handoff import Handoff
from headrace.lsn import Lsn
from headrace.pipeline.failpoint import set_hook
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from pipelining import piped, pipeline_config, wait_equal
from reaching import once_at

Connection = psycopg.Connection[Any]

NAMES = tuple(f"public.{name}" for name in TABLES)
BY_CTID = {"initial_copy": {"rows_per_range": 300, "bytes_per_range": 16 << 10, "key_ranges_over_bytes": None}}
BY_KEY = {
    "initial_copy": {"rows_per_range": 300, "key_ranges_over_bytes": 0},
    "max_copy_connections_per_table": 2,
}
CASES = [
    pytest.param((plan, seed), id=f"{name}-{seed}", marks=[pytest.mark.long] if seed >= 2 else [])
    for name, plan in (("ctid", BY_CTID), ("key", BY_KEY))
    for seed in range(10)
]
"""Ten seeds for each plan; `make test` takes two."""


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    set_hook(None)


def places(changes: pa.RecordBatch, *ops: str) -> set[tuple[int, int]]:
    chosen = changes.filter(pc.is_in(changes["op"], pa.array(ops)))
    return set(zip(chosen["commit_lsn"].to_pylist(), chosen["tx_ordinal"].to_pylist(), strict=True))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What hand-offs decided: changes that were in the copy, changes that were not, key changes cut in halves."""
    counts: Counter[str] = Counter()
    inner = Handoff.due

    def due(self: Handoff, changes: pa.RecordBatch) -> pa.RecordBatch:
        passed = inner(self, changes)
        counts["due"] += passed.num_rows
        counts["seen"] += changes.num_rows - passed.num_rows
        counts["halves"] += len(places(changes, "U") & places(passed, "I", "D"))
        return passed

    monkeypatch.setattr(Handoff, "due", due)
    return counts


@dataclass
class Overlap:
    """Writers get time to commit before a copy's first snapshot, after it, and between ranges."""

    load: Load
    connection: Connection
    reached: Counter[str] = field(default_factory=Counter)
    copied: dict[str | None, Lsn] = field(default_factory=dict)
    """Where the WAL ended when the last row of a table's copy was written."""

    def __call__(self, point: str, table: str | None) -> None:
        self.reached[f"{point} {table}"] += 1
        waits = {"copy.before_drop": 30, "copy.after_snapshot": 30, "copy.before_write": 8, "copy.after_range": 4}
        if point in waits:
            self.load.wait_more(waits[point])
        if point == "copy.before_finished":
            row = self.connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
            assert row is not None
            self.copied[table] = Lsn.parse(row[0])


def assert_no_change_twice(destination: DurableDestination) -> None:
    for table in NAMES:
        places = [(change.commit_lsn, change.tx_ordinal) for change in destination.change_log(table)]
        assert len(places) == len(set(places)) > 0, table


@pytest.mark.parametrize("case", CASES)
def test_tables_copied_under_fire_equal_the_source(
    conninfo: str,
    connection: Connection,
    spark: Any,
    tmp_path: Path,
    judged: Counter[str],
    case: tuple[dict[str, Any], int],
) -> None:
    plan, seed = case
    create_tables(connection, 2400)
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    with contextlib.ExitStack() as source:
        load = source.enter_context(busy(conninfo, seed))
        overlap = Overlap(load, connection)
        set_hook(overlap)
        with piped(pipeline_config(conninfo, tmp_path, **plan), store, destination, spark) as running:
            running.until_ready(timeout=120)
            load.wait_more(40)
            source.close()
            wait_equal(running, connection, destination, *NAMES, timeout=120)
    assert_no_change_twice(destination)
    # Some changes from before and during the copies were in them, others were not.
    applied = {
        table: [c for c in destination.change_log(table) if c.commit_lsn < overlap.copied[table]] for table in NAMES
    }
    assert judged["seen"] > 20
    assert sum(map(len, applied.values())) > 20
    by_key = plan is BY_KEY
    assert (overlap.reached["copy.after_range public.items"] > 2) is by_key
    assert (overlap.reached["copy.after_range public.marks"] > 2) is by_key
    assert bool(judged["halves"]) is by_key


def between_ranges(connection: Connection, statements: str) -> contextlib.AbstractContextManager[Counter[str]]:
    """Run statements after the first ranges of the first copy by key are durable."""
    return once_at("copy.after_range", lambda: connection.execute(statements))


OVERTAKEN = {
    # The row is in no range that was copied, and the change does not have its TOASTed value.
    "a key change with an unchanged TOASTed value": "UPDATE docs SET id = -5 WHERE id = 900",
    "a truncate": "TRUNCATE docs; INSERT INTO docs SELECT n, 1, 'after' FROM generate_series(1, 7) n",
}


@pytest.mark.parametrize("statements", OVERTAKEN.values(), ids=OVERTAKEN.keys())
def test_ranges_that_were_overtaken_are_copied_again_under_one_snapshot(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, statements: str
) -> None:
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, n int, body text)")
    connection.execute("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL")
    connection.execute("INSERT INTO docs SELECT n, 0, repeat(md5(n::text), 80) FROM generate_series(1, 1000) n")
    connection.execute("ANALYZE; CREATE PUBLICATION pub FOR TABLE docs")
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    with (
        between_ranges(connection, statements) as reached,
        piped(pipeline_config(conninfo, tmp_path, **BY_KEY), store, destination, spark) as running,
    ):
        running.until_ready()
        wait_equal(running, connection, destination, "public.docs")
        connection.execute("UPDATE docs SET n = n + 1")
        wait_equal(running, connection, destination, "public.docs")
    # The first copy was by ranges; the second was not, and nothing was taken for an error.
    assert (reached["copy.after_snapshot"], reached["copy.after_range"] > 1) == (2, True)
    (table_id,) = store.get_table_states()
    copy = store.get_copy(table_id)
    assert copy is not None
    assert copy[0].one_snapshot
    history = [entry.state.state for entry in store.get_table_state_history(table_id)]
    assert history.count(State.DATA_SYNC) == 2
    assert State.ERRORED not in history


def test_a_key_change_between_ranges_is_applied_by_halves(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, judged: Counter[str]
) -> None:
    connection.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
    connection.execute("INSERT INTO items SELECT n, 'n' FROM generate_series(1, 1500) n")
    connection.execute("ANALYZE; CREATE PUBLICATION pub FOR TABLE items")
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    # To a range that was copied before, and from one: the one row is in no range, the other in two.
    statements = "UPDATE items SET id = -5 WHERE id = 1400; UPDATE items SET id = 2000 WHERE id = 7"
    with (
        between_ranges(connection, statements) as reached,
        piped(pipeline_config(conninfo, tmp_path, **BY_KEY), store, destination, spark) as running,
    ):
        running.until_ready()
        wait_equal(running, connection, destination, "public.items")
    copied = [row["id"] for row in destination.copied("public.items")]
    assert (copied.count(1400), copied.count(-5), copied.count(7), copied.count(2000)) == (0, 0, 1, 1)
    log = destination.change_log("public.items")
    assert [(change.op, (change.row or change.old or {})["id"]) for change in log] == [("I", -5), ("D", 7)]
    assert (judged["due"], judged["seen"], reached["copy.after_snapshot"]) == (2, 0, 1)
