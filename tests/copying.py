"""Copying whole tables in tests: run a plan, and ask psycopg for the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
import pyarrow as pa

from headrace.initial_copy.ranges import CopyPlan, CopyRange
from headrace.initial_copy.reader import CopyBatch, copy_columns, read_range
from headrace.postgres.connection import parse_conninfo
from headrace.postgres.publications import published_tables
from headrace.postgres.snapshots import export_snapshot
from headrace.schema import ReplicatedTableSchema

Connection = psycopg.Connection[Any]


def published(connection: Connection, table: str, what: str | None = None) -> ReplicatedTableSchema:
    """The table as a new publication shows it; `what` defaults to all tables."""
    connection.execute("DROP PUBLICATION IF EXISTS copied")
    connection.execute(f"CREATE PUBLICATION copied {what or 'FOR ALL TABLES'}")
    return next(schema for schema in published_tables(connection, "copied") if schema.table.name.name == table)


def batches_of(conninfo: str, part: CopyRange, plan: CopyPlan, **how: Any) -> list[CopyBatch]:
    return list(read_range(parse_conninfo(conninfo), part, copy_columns(plan.schema), **how))


def copied(conninfo: str, plan: CopyPlan, **how: Any) -> list[tuple[Any, ...]]:
    """Rows of the whole plan, sorted."""
    if not plan.one_snapshot:
        return rows_of(batch for part in plan.ranges for batch in batches_of(conninfo, part, plan, **how))
    with export_snapshot(parse_conninfo(conninfo)) as held:
        named = {"snapshot_name": held.name, **how}
        return rows_of(batch for part in plan.ranges for batch in batches_of(conninfo, part, plan, **named))


def rows_of(batches: Iterable[CopyBatch]) -> list[tuple[Any, ...]]:
    table = pa.Table.from_batches([batch.rows for batch in batches])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def selected(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(query).fetchall(), key=repr)
