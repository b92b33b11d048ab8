"""Logical replication slots: create, look at, drop.

A slot makes the server keep WAL for us, and only for us. So it is dropped with care, and its state is looked at while
running: a slot that lost its WAL goes on existing and never delivers again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors as pg

from ..errors import ConfigError, SlotAlreadyExists, SlotDropTimeout, SlotInvalidated, SlotNotFound, SourceCanceled
from ..lsn import Lsn
from .translation import translated_errors
from .version import ServerVersion

__all__ = [
    "DROP_TIMEOUT_S",
    "SlotHolder",
    "SlotState",
    "can_have_failover_slots",
    "create_slot",
    "drop_slot",
    "require_own",
    "require_usable",
    "slot_holder",
    "slot_state",
    "try_lock_slot",
]

# Creation waits for every transaction that is running now; a long report on the source may take minutes.
CREATE_TIMEOUT_S = 300.0
DROP_TIMEOUT_S = 30.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class SlotState:
    """A row of pg_replication_slots. What the server's version does not know is None."""

    name: str
    plugin: str | None
    database: str | None
    active: bool
    active_pid: int | None
    wal_status: str | None
    """reserved, extended, unreserved (may be lost any moment), lost."""
    restart_lsn: Lsn | None
    confirmed_flush_lsn: Lsn | None
    safe_wal_size: int | None
    """Bytes that may still be written before the slot is in danger; None without max_slot_wal_keep_size."""
    conflicting: bool | None
    invalidation_reason: str | None
    failover: bool | None

    @property
    def lost(self) -> bool:
        """The slot will never deliver again: WAL or catalog rows that it needs are gone."""
        return self.wal_status == "lost" or bool(self.conflicting) or self.invalidation_reason is not None


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """The server process that reads a slot. What the role may not see of it is None."""

    pid: int
    application_name: str | None
    client_addr: str | None
    backend_start: str | None

    def __str__(self) -> str:
        known = {"application": self.application_name, "client": self.client_addr, "since": self.backend_start}
        return f"process {self.pid}" + "".join(f", {name} {value}" for name, value in known.items() if value)


_HOLDER = """
SELECT s.active_pid, a.application_name, pg_catalog.host(a.client_addr), pg_catalog.to_char(
       a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND s.active_pid IS NOT NULL
"""


def slot_holder(connection: psycopg.Connection[Any], name: str) -> SlotHolder | None:
    """Return the process that reads the slot now, or None."""
    with translated_errors("cannot read replication slots"):
        row = connection.execute(_HOLDER, (name,)).fetchone()
    return None if row is None else SlotHolder(*row)


def slot_state(connection: psycopg.Connection[Any], name: str) -> SlotState | None:
    """The slot as it is now, or None."""
    query = "SELECT pg_catalog.to_jsonb(s) FROM pg_catalog.pg_replication_slots s WHERE slot_name = %s"
    with translated_errors("cannot read replication slots"):
        row = connection.execute(query, (name,)).fetchone()
    return None if row is None else _state(row[0])


def _state(row: dict[str, Any]) -> SlotState:
    def lsn(column: str) -> Lsn | None:
        text = row.get(column)
        return None if text is None else Lsn.parse(text)

    return SlotState(
        name=row["slot_name"],
        plugin=row["plugin"],
        database=row["database"],
        active=row["active"],
        active_pid=row["active_pid"],
        wal_status=row["wal_status"],
        restart_lsn=lsn("restart_lsn"),
        confirmed_flush_lsn=lsn("confirmed_flush_lsn"),
        safe_wal_size=row["safe_wal_size"],
        conflicting=row.get("conflicting"),
        invalidation_reason=row.get("invalidation_reason"),
        failover=row.get("failover"),
    )


def require_own(state: SlotState, database: str) -> None:
    """Raise ConfigError unless a slot is a pgoutput slot of this database. Names are unique in the whole cluster."""
    if state.database == database and state.plugin == "pgoutput":
        return
    taken = f"a slot of database {state.database}, with plugin {state.plugin}" if state.database else "a physical slot"
    raise ConfigError(
        f"replication slot {state.name} is {taken}; this pipeline reads database {database} with plugin pgoutput",
        hint="choose another id or slot_name; or, if nobody uses the slot, drop it with pg_drop_replication_slot",
    )


def require_usable(connection: psycopg.Connection[Any], name: str) -> SlotState:
    """Return the state of a slot, after checking that this database can read from it.

    Raises SlotNotFound, SlotInvalidated with the server's reason, or ConfigError for the slot of another database.
    """
    state = slot_state(connection, name)
    if state is None:
        msg = f"replication slot {name} does not exist"
        raise SlotNotFound(msg)
    require_own(state, connection.info.dbname)
    if state.lost:
        msg = f"replication slot {name} is invalidated"
        raise SlotInvalidated(msg, detail=state.invalidation_reason or f"wal_status is {state.wal_status}")
    return state


def can_have_failover_slots(connection: psycopg.Connection[Any]) -> bool:
    """Return whether this server can create slots that its standbys keep a copy of: a primary, from 17 on."""
    if not ServerVersion.of(connection).failover_slots:
        return False
    with translated_errors("cannot tell a primary from a standby"):
        return connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (False,)


def create_slot(
    connection: psycopg.Connection[Any], name: str, *, failover: bool = False, timeout_s: float = CREATE_TIMEOUT_S
) -> Lsn:
    """Create a logical pgoutput slot; return the LSN from which it delivers every commit.

    Waits for all transactions running at the moment; on a standby also for the primary's next running-transactions
    record, which `pg_log_standby_snapshot()` on the primary brings at once. `failover` (17+): standbys keep it too.
    """
    version = ServerVersion.of(connection)
    version.require(version.failover_slots or not failover, "a failover slot", 17)
    call = "%s, 'pgoutput', false, false" + (", true" if failover else "")
    with translated_errors(f"cannot create replication slot {name}"):
        try:
            with connection.transaction():
                limit = str(int(timeout_s * 1000))
                connection.execute("SELECT pg_catalog.set_config('statement_timeout', %s, true)", (limit,))
                query = f"SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot({call})"
                row = connection.execute(query, (name,)).fetchone()
        except pg.DuplicateObject:
            raise SlotAlreadyExists(f"replication slot {name} already exists", sqlstate="42710") from None
        except pg.QueryCanceled:
            raise _creation_canceled(name, timeout_s) from None
    assert row is not None
    return Lsn.parse(row[0])


def _creation_canceled(name: str, timeout_s: float) -> SourceCanceled:
    return SourceCanceled(
        f"creating replication slot {name} did not finish within {timeout_s:g} s",
        sqlstate="57014",
        hint="it waits for transactions that were running before it: find the oldest with SELECT pid, xact_start, "
        "query FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start; on a standby, run SELECT "
        "pg_log_standby_snapshot() on the primary",
    )


def try_lock_slot(connection: psycopg.Connection[Any], name: str) -> bool:
    """Try to take the advisory lock that guards creating and dropping a slot; return whether it was taken.

    The lock lasts until the connection is closed. Reading the slot does not need it.
    """
    query = "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended(%s, 0))"
    with translated_errors(f"cannot lock replication slot {name}"):
        row = connection.execute(query, (f"headrace-slot:{name}",)).fetchone()
    return row == (True,)


def drop_slot(
    connection: psycopg.Connection[Any], name: str, *, timeout_s: float = DROP_TIMEOUT_S, terminate: bool = False
) -> None:
    """Drop the slot, waiting until its reader is gone; `terminate` ends the reader.

    Raises SlotNotFound or SlotDropTimeout.
    """
    deadline = time.monotonic() + timeout_s
    while not _dropped(connection, name):
        state = slot_state(connection, name)
        pid = state.active_pid if state else None
        if time.monotonic() >= deadline:
            msg = f"replication slot {name} is still in use after {timeout_s:g} s"
            raise SlotDropTimeout(msg, detail=f"its reader is the process {pid}", sqlstate="55006")
        if terminate and pid is not None:
            with translated_errors(f"cannot end the reader of replication slot {name}"):
                connection.execute("SELECT pg_catalog.pg_terminate_backend(%s)", (pid,))
        time.sleep(_POLL_S)


def _dropped(connection: psycopg.Connection[Any], name: str) -> bool:
    with translated_errors(f"cannot drop replication slot {name}"):
        try:
            connection.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (name,))
        except pg.ObjectInUse:
            return False
        except pg.UndefinedObject:
            raise SlotNotFound(f"replication slot {name} does not exist", sqlstate="42704") from None
    return True
