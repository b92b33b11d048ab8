"""Single batches of a streaming pipeline: a transaction goes in, its batch's seconds and CPU come out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg

from headrace.pipeline import Pipeline
from headrace.testing import PostgresServer
from processes import CpuMeter
from waiting import batch_totals, until, write_totals

__all__ = ["AT_ONCE", "Batch", "applied", "medians", "random_keys", "tables", "update"]

AT_ONCE: dict[str, Any] = {"batch": {"max_fill_ms": 1}, "spool": {"segment_age_ms": 5}}
"""Settings by which a transaction is a batch of its own, as soon as it is committed."""

# Where changes are applied. What receives and sends them costs the same however they are applied.
APPLYING = ("driver", "jvm", "workers")
# Rare enough that waiting costs no CPU that counts.
POLL_S = 0.02

CREATE = "CREATE TABLE {table} (id bigint PRIMARY KEY, v text, n numeric(12, 2), at timestamptz)"
FILL = """INSERT INTO {table} SELECT g, md5(g::text), g % 1000 / 10.0, '2025-01-01'::timestamptz + g * '1 s'::interval
FROM generate_series(1, {rows}) g"""


@dataclass(frozen=True, slots=True)
class Batch:
    batch_s: float
    """From its first segment to stored progress."""
    write_s: float
    """In the destination, which also decodes and folds; of all tables together."""
    cpu_s: float


@contextmanager
def tables(server: PostgresServer, names: Sequence[str], rows: int) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A database with these tables, each with so many rows; its conninfo and a connection."""
    with (
        server.database("bench") as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
    ):
        for table in names:
            connection.execute(CREATE.format(table=table))
            connection.execute(FILL.format(table=table, rows=rows))
        connection.execute("CREATE PUBLICATION bench FOR ALL TABLES")
        connection.execute("VACUUM ANALYZE")
        # Not while we measure.
        connection.execute("CHECKPOINT")
        yield conninfo, connection


def random_keys(random: np.random.Generator, rows: int, count: int) -> list[int]:
    return [int(key) for key in random.choice(rows, count, replace=False) + 1]


def update(connection: psycopg.Connection[Any], table: str, keys: list[int]) -> None:
    connection.execute(f"UPDATE {table} SET v = md5(random()::text), n = n + 1 WHERE id = ANY(%s)", (keys,))


def applied(pipeline: Pipeline, changes: int, transaction: Callable[[], object]) -> Batch:
    """Commit the transaction, wait until its changes are durable."""
    target = _changes(pipeline) + changes
    batches, writes = batch_totals(pipeline), write_totals(pipeline)
    with CpuMeter(interval_s=1) as meter:
        transaction()
        until(pipeline, lambda _: _changes(pipeline) >= target, poll_s=POLL_S)
        until(pipeline, lambda _: batch_totals(pipeline)[0] > batches[0], poll_s=POLL_S)
    cpu = meter.seconds()
    return Batch(
        batch_totals(pipeline)[1] - batches[1],
        write_totals(pipeline)[1] - writes[1],
        sum(cpu.get(role, 0.0) for role in APPLYING),
    )


def medians(batches: Sequence[Batch]) -> dict[str, float]:
    names = ("batch_s", "write_s", "cpu_s")
    return {name: round(statistics.median(getattr(batch, name) for batch in batches), 3) for name in names}


def _changes(pipeline: Pipeline) -> int:
    return sum(table.changes for table in pipeline.status.tables.values())
