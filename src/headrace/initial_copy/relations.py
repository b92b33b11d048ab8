"""Where a table's rows lie: its heaps, how large they are, and how many rows the server thinks they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from ..postgres.translation import translated_errors
from ..schema import TableName

__all__ = ["Heap", "keep_in_place", "read_heaps"]

# reltuples belongs to relpages, both as of the last VACUUM or ANALYZE; -1 and 0 pages are "never".
_QUERY = """
WITH leaves AS (
    SELECT %(id)s::oid AS oid
    UNION
    SELECT relid::oid FROM pg_catalog.pg_partition_tree(%(id)s::oid::pg_catalog.regclass)
)
SELECT n.nspname, c.relname, c.relkind = 'f', c.reltuples::float8, c.relpages,
       coalesce(pg_catalog.pg_relation_size(c.oid), 0) / pg_catalog.current_setting('block_size')::int8,
       coalesce(pg_catalog.pg_table_size(c.oid), 0)
FROM leaves JOIN pg_catalog.pg_class c USING (oid) JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'p' ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Heap:
    """A relation that holds rows itself: a table, or a leaf of a partitioned one."""

    name: TableName
    foreign: bool
    """Its rows lie elsewhere: no ctid, no size, no snapshot."""
    blocks: int
    bytes: int
    """With its TOAST table."""
    rows: int | None
    """None when the server has no statistics."""


def read_heaps(connection: psycopg.Connection[Any], table_id: int) -> tuple[Heap, ...]:
    """The table itself or, of a partitioned one, all leaves; empty when there are no partitions, or no such table."""
    with translated_errors("cannot read the sizes of a table"):
        rows = connection.execute(_QUERY, {"id": table_id}).fetchall()
    return tuple(
        Heap(TableName(schema, name), foreign, blocks, size, _rows(tuples, pages, blocks))
        for schema, name, foreign, tuples, pages, blocks, size in rows
    )


def _rows(tuples: float, pages: int, blocks: int) -> int | None:
    """Rows of the table at its present size, at the density that the statistics saw."""
    return round(tuples / pages * blocks) if tuples >= 0 and pages > 0 else None


def keep_in_place(connection: psycopg.Connection[Any], heaps: tuple[Heap, ...]) -> None:
    """Lock the heaps against being rewritten, if the connection holds a transaction open.

    VACUUM FULL or CLUSTER between two ctid ranges would move rows from one to the other; this lock is what a SELECT
    takes, and keeps both out.
    """
    if connection.info.transaction_status is not TransactionStatus.INTRANS:
        return
    names = [sql.SQL("ONLY ") + sql.Identifier(h.name.schema, h.name.name) for h in heaps if not h.foreign]
    if names:
        with translated_errors("cannot lock a table for its copy"):
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(sql.SQL(", ").join(names)))
