"""Who writes to a table right now, by the locks that writers hold until their transactions end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from .translation import translated_errors

__all__ = ["table_writers", "written_tables"]

_WRITERS = """
SELECT DISTINCT {what} FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.granted AND l.relation = ANY(%s::oid[])
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
"""


def table_writers(connection: psycopg.Connection[Any], table_ids: Sequence[int]) -> dict[str, int | None]:
    """The transactions that have written to one of the tables and have not ended, each with the process of its server.

    Prepared ones too, which have none.
    """
    with translated_errors("cannot read locks"):
        found = connection.execute(_WRITERS.format(what="l.virtualtransaction, l.pid"), (list(table_ids),)).fetchall()
    return dict(found)


def written_tables(connection: psycopg.Connection[Any], table_ids: Sequence[int]) -> frozenset[int]:
    """Those of the tables that `table_writers` would name a transaction for."""
    with translated_errors("cannot read locks"):
        found = connection.execute(_WRITERS.format(what="l.relation::int8"), (list(table_ids),)).fetchall()
    return frozenset(table_id for (table_id,) in found)
