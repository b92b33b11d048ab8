"""Freshness: seconds from the commit at the source until a reader of the Iceberg table finds it there.

Every transaction is measured, not a sample. Its commit time and LSN are the server's own, read afterwards from a second
slot on the same WAL. It is visible as soon as another process finds metadata in the catalog whose current snapshot has
an LSN beyond the commit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

import pipeline_reader
from headrace.lsn import Lsn
from pipeline_batches import tables
from pipeline_lakehouse import Lakehouse, streaming
from pipeline_sizes import Sizes
from processes import CpuMeter, megabytes
from waiting import until

__all__ = ["CHURN", "CLOCK", "Commits", "Writer", "freshness", "percentiles", "read_commits", "run"]

CLOCK = "clock"
PER_TRANSACTION = 10
# Of ten changes, where all kinds are mixed.
UPDATES, INSERTS, DELETES = 6, 2, 2

# Keys grow at one end and are deleted at the other, so that each statement changes exactly what it says.
CHURN = """
CREATE FUNCTION churn(name text, first bigint, inserts int, low bigint, deletes int, keys bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('INSERT INTO %I SELECT g, md5(g::text), 1, now() FROM generate_series($1, $1 + $2 - 1) g', name)
    USING first, inserts;
  IF deletes > 0 THEN
    EXECUTE format('DELETE FROM %I WHERE id >= $1 AND id < $1 + $2', name) USING low, deletes;
  END IF;
  IF cardinality(keys) > 0 THEN
    EXECUTE format('UPDATE %I SET n = n + 1, v = md5(v) WHERE id = ANY($1)', name) USING keys;
  END IF;
END $$;
"""
# pgoutput's messages: of Insert, Update and Delete the relation's id, of Commit its LSN and time.
COMMITS = f"""
SELECT (array_agg(relation) FILTER (WHERE relation IS NOT NULL))[1]::oid::regclass::text, count(relation),
  (array_agg(data) FILTER (WHERE kind = 'C'))[1]
FROM (SELECT xid, data, chr(get_byte(data, 0)) AS kind,
        CASE WHEN chr(get_byte(data, 0)) IN ('I', 'U', 'D')
             THEN ('x' || encode(substring(data FROM 2 FOR 4), 'hex'))::bit(32)::int END AS relation
      FROM pg_logical_slot_get_binary_changes('{CLOCK}', NULL, NULL, 'proto_version', '1', 'publication_names', 'bench')
     ) AS messages
GROUP BY xid::text HAVING count(relation) > 0
"""
COMMIT = np.dtype([("kind", "S1"), ("flags", "u1"), ("lsn", ">u8"), ("end", ">u8"), ("time", ">i8")])
POSTGRES_EPOCH_S = 946_684_800


class Writer:
    """Commits small transactions at a steady rate, table after table, until told to stop."""

    def __init__(self, conninfo: str, names: list[str], sizes: Sizes, *, append: bool) -> None:
        self._conninfo, self._names, self._append = conninfo, names, append
        self._period_s = PER_TRANSACTION / sizes.fresh_changes_per_s
        self._low = dict.fromkeys(names, 1)
        self._next = dict.fromkeys(names, sizes.fresh_rows + 1)
        self._random = np.random.default_rng(5)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                due, turn = time.monotonic(), 0
                while not self._stop.wait(max(0.0, due - time.monotonic())):
                    self._commit(connection, self._names[turn % len(self._names)])
                    turn, due = turn + 1, due + self._period_s
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            self._failure = error

    def _commit(self, connection: psycopg.Connection[Any], name: str) -> None:
        low, following = self._low[name], self._next[name]
        inserts, deletes = (PER_TRANSACTION, 0) if self._append else (INSERTS, DELETES)
        # Neither what goes nor what comes in this transaction: each key changes once.
        room = following - low - deletes
        keys = [] if self._append else self._random.choice(room, UPDATES, replace=False) + low + deletes
        arguments = (name, following, inserts, low, deletes, [int(key) for key in keys])
        connection.execute("SELECT churn(%s, %s, %s, %s, %s, %s::bigint[])", arguments)
        self._low[name], self._next[name] = low + deletes, following + inserts


@dataclass(frozen=True, slots=True)
class Commits:
    """Transactions of one table: when and where each was committed, in the order of the WAL."""

    times: np.ndarray[Any, Any]
    lsns: np.ndarray[Any, Any]
    changes: int


def read_commits(connection: psycopg.Connection[Any]) -> dict[str, Commits]:
    found: dict[str, list[tuple[int, bytes]]] = {}
    for table, changes, commit in connection.execute(COMMITS).fetchall():
        found.setdefault(table, []).append((changes, bytes(commit)))
    result = {}
    for table, rows in found.items():
        commits = np.sort(np.frombuffer(b"".join(data for _, data in rows), COMMIT), order="lsn")
        times = commits["time"].astype(np.float64) / 1e6 + POSTGRES_EPOCH_S
        result[table] = Commits(times, commits["lsn"].astype(np.int64), sum(changes for changes, _ in rows))
    return result


def freshness(commits: Commits, seen: list[tuple[float, int]]) -> np.ndarray[Any, Any]:
    """Of each transaction the seconds until it was seen: in the first metadata whose LSN is beyond its commit."""
    times, lsns = np.array([time for time, _ in seen]), np.array([lsn for _, lsn in seen], np.int64)
    assert (np.diff(lsns) >= 0).all(), "a table went back"
    first = np.searchsorted(lsns, commits.lsns, side="right")
    assert (first < len(seen)).all(), f"{(first == len(seen)).sum()} transactions were never seen"
    return times[first] - commits.times


@contextmanager
def reading(catalog: Path, namespace: str) -> Iterator[dict[str, list[tuple[float, int]]]]:
    """Another process that watches the tables of a namespace; what it saw is there when the block has ended."""
    seen: dict[str, list[tuple[float, int]]] = {}
    command = [sys.executable, pipeline_reader.__file__, str(catalog), namespace]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield seen
        finally:
            output, _ = process.communicate()
    assert process.returncode == 0, "the reader failed"
    seen.update(json.loads(output))


def measure(lakehouse: Lakehouse, sizes: Sizes, count: int, *, append: bool) -> dict[str, Any]:
    namespace, names = f"fresh_{count}" + ("_append" if append else ""), [f"t{n}" for n in range(count)]
    with tables(lakehouse.server, names, sizes.fresh_rows) as (conninfo, connection):
        connection.execute(CHURN)
        # The pipeline's defaults: what a user gets.
        with streaming(lakehouse, conninfo, namespace) as pipeline, reading(lakehouse.catalog_file, namespace) as seen:
            with Writer(conninfo, names, sizes, append=append):
                time.sleep(sizes.fresh_warm_up_s)
                connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (CLOCK,))
                with CpuMeter() as meter:
                    time.sleep(sizes.fresh_seconds)
            row = connection.execute("SELECT pg_logical_emit_message(true, 'bench', 'end')::text").fetchone()
            assert row is not None
            end = Lsn.parse(row[0])
            until(pipeline, lambda s: s.applied > end)
        commits = read_commits(connection)
        for name in names:
            wanted = connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]
            found = lakehouse.count(namespace, name)
            assert found == wanted, f"{name} has {wanted} rows, our copy {found}"
    lakehouse.forget(namespace)
    seconds = np.concatenate([freshness(commits[name], seen[name]) for name in names])
    cpu = {role: round(spent / sizes.fresh_seconds, 3) for role, spent in meter.seconds().items()}
    return {
        **percentiles(seconds),
        "max": round(float(seconds.max()), 2),
        "transactions": len(seconds),
        "changes_per_s": _rate(commits),
        "rows_per_table": sizes.fresh_rows,
        "cores": cpu,
        "peak_memory_mb": megabytes(meter.peak_rss),
    }


def run(lakehouse: Lakehouse, sizes: Sizes) -> dict[str, Any]:
    cases = {
        "freshness_8_tables_s": {"count": 8, "append": False},
        "freshness_1_table_s": {"count": 1, "append": False},
        "freshness_append_s": {"count": 1, "append": True},
    }
    figures, details = {}, {}
    for name, case in cases.items():
        found = measure(lakehouse, sizes, **case)
        print(f"  {name}: {found}")
        figures[name] = {percentile: found.pop(percentile) for percentile in ("p50", "p95")}
        details[name] = found
    return {**figures, "freshness": details}


def percentiles(seconds: np.ndarray[Any, Any]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(seconds, share)), 2) for share in (50, 95)}


def _rate(commits: Mapping[str, Commits]) -> float:
    first = min(float(table.times.min()) for table in commits.values())
    last = max(float(table.times.max()) for table in commits.values())
    return round(sum(table.changes for table in commits.values()) / (last - first), 1)
