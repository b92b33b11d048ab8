"""A pipeline at work on the test's own database, with ways to wait for it and to compare its destination's tables."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from headrace.config.pipeline import PipelineConfig
from headrace.destinations.contract import Destination
from headrace.errors import TableNotFound
from headrace.lsn import Lsn
from headrace.pipeline import Pipeline, PipelineStatus
from headrace.postgres.connection import parse_conninfo
from headrace.stores.contract import PipelineStore
from headrace.table_state import State
from headrace.testing.canonical import canonical, canonical_text

PUBLICATION = "pub"
# Beside other runs, and on any machine: only what fails waits this long.
PATIENCE_S = 180.0


def pipeline_config(conninfo: str, root: Path, **settings: Any) -> PipelineConfig:
    """Quick to react: small batches, short delays. The slot is the database's own, since slots are per server."""
    connection = parse_conninfo(conninfo)
    merged = {
        "id": 1,
        "publication_name": PUBLICATION,
        "pg_connection": connection,
        "slot_name": f"slot_{connection.name}",
        "data_dir": root,
        "batch": {"max_fill_ms": 50},
        "spool": {"segment_age_ms": 20},
        "receiver": {"status_interval_ms": 50, "reconnect_max_delay_ms": 200},
        "table_error_retry_delay_ms": 200,
        **settings,
    }
    return PipelineConfig.model_validate(merged)


class Piped:
    """A running pipeline. What ends it fails the test that waits."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    @property
    def status(self) -> PipelineStatus:
        return self.pipeline.status

    def until(self, condition: Callable[[], bool], timeout: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            ended = self.pipeline.wait(0.02)
            assert not ended or condition(), f"the pipeline ended: {self.status}"
            assert time.monotonic() < deadline, f"the condition never came true: {self.status}"

    def states(self) -> dict[str, State]:
        return {name: table.state.state for name, table in self.status.tables.items()}

    def until_ready(self, *tables: str, timeout: float = PATIENCE_S) -> None:
        """All tables, or those named as schema.table, are Ready."""

        def ready() -> bool:
            states = self.states()
            wanted = tables or tuple(states)
            return bool(states) and all(states.get(name) is State.READY for name in wanted)

        self.until(ready, timeout)

    def until_applied(self, connection: psycopg.Connection[Any], timeout: float = PATIENCE_S) -> None:
        """Everything committed before now is durable for every table: a message sent now has come through."""
        row = connection.execute("SELECT pg_logical_emit_message(true, 'tests', 'marker')::text").fetchone()
        assert row is not None
        marker = Lsn.parse(row[0])

        def applied() -> bool:
            tables = self.status.tables.values()
            return bool(tables) and all(table.position > marker for table in tables)

        self.until(applied, timeout)


@contextmanager
def piped(config: PipelineConfig, store: PipelineStore, destination: Destination, spark: Any) -> Iterator[Piped]:
    """A pipeline that runs until the block ends, then stops in order."""
    with Pipeline(config, store, destination, spark=spark) as pipeline:
        pipeline.start()
        yield Piped(pipeline)
    pipeline.wait(PATIENCE_S)


def source_rows(connection: psycopg.Connection[Any], table: str) -> list[str]:
    """The source's rows of a table, canonical, sorted."""
    with connection.cursor() as cursor:
        rows = cursor.execute(f"SELECT * FROM {table}").fetchall()
        names = [column.name for column in cursor.description or ()]
    return sorted(canonical_text(canonical(dict(zip(names, row, strict=True)))) for row in rows)


def destination_rows(destination: Any, table: str) -> list[str]:
    """A destination's rows of a table, canonical, sorted."""
    rows = destination.rows(table)
    rows = rows.to_pylist() if hasattr(rows, "to_pylist") else rows
    return sorted(canonical_text(canonical(row)) for row in rows)


def assert_equal_tables(connection: psycopg.Connection[Any], destination: Any, *tables: str) -> None:
    """Whole tables compared, row for row."""
    for table in tables:
        wanted, found = source_rows(connection, table), destination_rows(destination, table)
        missing = sorted(set(wanted) - set(found))
        extra = sorted(set(found) - set(wanted))
        assert wanted == found, f"{table}: {len(missing)} missing {missing[:3]}, {len(extra)} extra {extra[:3]}"


def wait_equal(
    running: Piped, connection: psycopg.Connection[Any], destination: Any, *tables: str, timeout: float = PATIENCE_S
) -> None:
    """Wait until everything was applied, then compare."""
    running.until_applied(connection, timeout)
    assert_equal_tables(connection, destination, *tables)


def until_equal(running: Piped, connection: psycopg.Connection[Any], destination: Any, table: str) -> None:
    """Wait for a table that is copied again: the memory destination has none between two copies."""

    def equal() -> bool:
        with contextlib.suppress(TableNotFound):
            return destination_rows(destination, table) == source_rows(connection, table)
        return False

    running.until(equal)
