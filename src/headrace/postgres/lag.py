"""How far behind a slot is, in bytes of WAL and in seconds; on a primary and on a standby."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from ..errors import SlotNotFound
from ..lsn import Lsn
from .translation import translated_errors

__all__ = ["SlotLag", "slot_lag", "wal_end"]

# A standby has no insert position; it decodes what it has replayed.
_WAL_END = """CASE WHEN pg_catalog.pg_is_in_recovery()
    THEN COALESCE(pg_catalog.pg_last_wal_replay_lsn(), pg_catalog.pg_last_wal_receive_lsn())
    ELSE pg_catalog.pg_current_wal_lsn() END"""

_SLOT_LAG = f"""
SELECT w.lsn::text, w.lsn - s.confirmed_flush_lsn, w.lsn - s.restart_lsn,
       extract(epoch FROM r.write_lag)::float8, extract(epoch FROM r.flush_lag)::float8,
       extract(epoch FROM r.replay_lag)::float8
FROM (SELECT {_WAL_END} AS lsn) w
JOIN pg_catalog.pg_replication_slots s ON s.slot_name = %s
LEFT JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid
"""


@dataclass(frozen=True, slots=True)
class SlotLag:
    """Seconds are the walsender's own measurements; None when nobody reads the slot or nothing was to be confirmed."""

    wal_end: Lsn
    unconfirmed_bytes: int | None
    """WAL written since the position the reader confirmed."""
    retained_bytes: int | None
    """WAL the server keeps on disk for the slot; None for a slot that lost its WAL."""
    write_lag_s: float | None
    flush_lag_s: float | None
    replay_lag_s: float | None


def wal_end(connection: psycopg.Connection[Any]) -> Lsn:
    """The end of the WAL that this server can decode."""
    with translated_errors("cannot read the WAL position"):
        row = connection.execute(f"SELECT ({_WAL_END})::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def slot_lag(connection: psycopg.Connection[Any], name: str) -> SlotLag:
    """The lag of one slot, in one query. Raises SlotNotFound."""
    with translated_errors("cannot read replication lag"):
        row = connection.execute(_SLOT_LAG, (name,)).fetchone()
    if row is None:
        msg = f"replication slot {name} does not exist"
        raise SlotNotFound(msg)
    end, unconfirmed, retained, *seconds = row
    # The confirmed position may be ahead for a moment: a keepalive names the end of a record still being written.
    behind = [None if value is None else max(0, int(value)) for value in (unconfirmed, retained)]
    return SlotLag(Lsn.parse(end), *behind, *seconds)
