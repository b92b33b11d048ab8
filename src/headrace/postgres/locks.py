"""Who writes to a table right now, by the locks that writers hold until their transactions end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg

from .translation import translated_errors

__all__ = ["prepared_names", "table_writers", "written_tables"]

_WRITERS = """
SELECT DISTINCT {what} FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.granted AND l.relation = ANY(%s::oid[])
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
"""


# A backend reports a new state before it executes COMMIT, so one that is idle has not written its commit record. What
# roles without pg_read_all_stats cannot see is NULL, and counts as "may be committing".
_NOT_IDLE = """
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
                  WHERE a.pid = l.pid AND a.state IN ('idle in transaction', 'idle in transaction (aborted)'))
"""


def table_writers(
    connection: psycopg.Connection[Any], table_ids: Sequence[int], *, committing: bool = False
) -> dict[str, int | None]:
    """The transactions that have written to one of the tables and have not ended, each with the process of its server.

    Prepared ones too, which have none. With `committing`, leave out those whose session is known to be idle: all that
    may have written a commit record remain.
    """
    query = _WRITERS.format(what="l.virtualtransaction, l.pid") + (_NOT_IDLE if committing else "")
    with translated_errors("cannot read locks"):
        return dict(connection.execute(query, (list(table_ids),)).fetchall())


def prepared_names(connection: psycopg.Connection[Any], writers: Iterable[str]) -> list[str]:
    """Return the global identifiers of the prepared transactions among `table_writers`."""
    query = """
        SELECT p.gid FROM pg_catalog.pg_prepared_xacts p
        JOIN pg_catalog.pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = p.transaction AND l.pid IS NULL
        WHERE l.virtualtransaction = ANY(%s) ORDER BY 1"""
    with translated_errors("cannot read prepared transactions"):
        return [gid for (gid,) in connection.execute(query, (list(writers),))]


def written_tables(connection: psycopg.Connection[Any], table_ids: Sequence[int]) -> frozenset[int]:
    """Those of the tables that `table_writers` would name a transaction for."""
    with translated_errors("cannot read locks"):
        found = connection.execute(_WRITERS.format(what="l.relation::int8"), (list(table_ids),)).fetchall()
    return frozenset(table_id for (table_id,) in found)
