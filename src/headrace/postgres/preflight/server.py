"""Checks of the server: its version and the settings that logical replication needs."""

from __future__ import annotations

from typing import Any

import psycopg

from ..slots import can_have_failover_slots
from ..version import NEWEST, OLDEST, ServerVersion
from .contract import Finding, Severity, Target, named

__all__ = [
    "encoding",
    "free_slots",
    "free_walsenders",
    "idle_slot_timeout",
    "server_version",
    "slot_wal_limit",
    "synchronized_standby_slots",
    "wal_level",
]

_SAFE_WAL_MB = 1024  # Less than this is used up by one bulk load while the receiver is away.
_SAFE_IDLE_S = 300  # A restart or a deployment takes minutes; a slot must survive it.


def _setting(connection: psycopg.Connection[Any], name: str) -> str | None:
    row = connection.execute("SELECT pg_catalog.current_setting(%s, true)", (name,)).fetchone()
    return row[0] if row else None


def _number(connection: psycopg.Connection[Any], name: str) -> int | None:
    """A numeric setting in its base unit (pg_settings.unit), or None if this version has no such setting."""
    row = connection.execute("SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = %s", (name,)).fetchone()
    return row[0] if row else None


def _count(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


@named("server version")
def server_version(connection: psycopg.Connection[Any], _: Target) -> list[Finding]:
    version = ServerVersion.of(connection)
    supported = f"headrace supports {OLDEST} to {NEWEST}"
    if version.major < OLDEST:
        return [
            Finding(
                "server version", Severity.ERROR, f"Postgres {version} is too old; {supported}", "upgrade the server"
            )
        ]
    if version.major > NEWEST:
        return [
            Finding(
                "server version", Severity.WARNING, f"Postgres {version} is newer than what was tested; {supported}"
            )
        ]
    in_recovery = connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (True,)
    if in_recovery and not version.decoding_on_standby:
        message = f"this is a standby, and Postgres {version} decodes on a primary only"
        return [Finding("server version", Severity.ERROR, message, "use the primary, or Postgres 16 or newer")]
    return []


@named("wal_level")
def wal_level(connection: psycopg.Connection[Any], _: Target) -> list[Finding]:
    level = _setting(connection, "wal_level")
    if level == "logical":
        return []
    remedy = "ALTER SYSTEM SET wal_level = 'logical'; then restart the server"
    return [Finding("wal_level", Severity.ERROR, f"wal_level is {level}; logical decoding needs logical", remedy)]


@named("encoding")
def encoding(connection: psycopg.Connection[Any], _: Target) -> list[Finding]:
    """The server converts every encoding to UTF-8 but this one, which says nothing about its bytes."""
    if _setting(connection, "server_encoding") != "SQL_ASCII":
        return []
    message = (
        "the database has no encoding (SQL_ASCII): a text that is not valid UTF-8 stops the copy of its table, and, "
        "once it is inserted or updated, the whole pipeline, because the server cannot send it"
    )
    remedy = "dump the database and restore it into one created with ENCODING 'UTF8'"
    return [Finding("encoding", Severity.ERROR, message, remedy)]


@named("replication slots")
def free_slots(connection: psycopg.Connection[Any], _: Target) -> list[Finding]:
    limit = _number(connection, "max_replication_slots") or 0
    used = _count(connection, "SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots")
    return _free("replication slots", "max_replication_slots", used, limit)


@named("walsenders")
def free_walsenders(connection: psycopg.Connection[Any], _: Target) -> list[Finding]:
    limit = _number(connection, "max_wal_senders") or 0
    used = _count(connection, "SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication")
    return _free("walsenders", "max_wal_senders", used, limit)


def _free(check: str, setting: str, used: int, limit: int) -> list[Finding]:
    remedy = f"ALTER SYSTEM SET {setting} = {max(limit * 2, 10)}; then restart the server"
    if used >= limit:
        # An error only if the pipeline has none yet, which the check cannot know: an existing one still runs.
        return [Finding(check, Severity.ERROR, f"all {limit} {check} are in use", remedy)]
    if used == limit - 1:
        return [
            Finding(
                check, Severity.WARNING, f"{used} of {limit} {check} are in use; this pipeline takes the last", remedy
            )
        ]
    return []


@named("max_slot_wal_keep_size")
def slot_wal_limit(connection: psycopg.Connection[Any], _: Target) -> list[Finding]:
    megabytes = _number(connection, "max_slot_wal_keep_size")
    remedy = "ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; SELECT pg_reload_conf()"
    if megabytes is None or megabytes >= _SAFE_WAL_MB:
        return []
    if megabytes < 0:
        message = "max_slot_wal_keep_size has no limit: while nobody reads the slot, WAL can fill the server's disk"
    else:
        message = f"max_slot_wal_keep_size is {megabytes} MB: a short absence of the reader can invalidate the slot"
    severity = Severity.ERROR if megabytes == 0 else Severity.WARNING
    return [Finding("max_slot_wal_keep_size", severity, message, remedy)]


@named("idle_replication_slot_timeout")
def idle_slot_timeout(connection: psycopg.Connection[Any], _: Target) -> list[Finding]:
    seconds = _number(connection, "idle_replication_slot_timeout")
    if not seconds or seconds > _SAFE_IDLE_S:
        return []
    message = f"idle_replication_slot_timeout is {seconds} s: a restart of the reader can invalidate the slot"
    remedy = "ALTER SYSTEM SET idle_replication_slot_timeout = '1d'; SELECT pg_reload_conf()"
    return [Finding("idle_replication_slot_timeout", Severity.WARNING, message, remedy)]


_STANDBYS = """
SELECT s.slot_name FROM pg_catalog.pg_replication_slots s WHERE s.slot_type = 'physical' AND NOT s.temporary
UNION ALL
SELECT NULL FROM pg_catalog.pg_stat_replication r WHERE r.state = 'streaming'
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots s WHERE s.active_pid = r.pid)
ORDER BY 1
"""


@named("synchronized_standby_slots")
def synchronized_standby_slots(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    """Without it the slot delivers changes that no standby has yet, and a failover takes them back."""
    if not (target.failover_slot and can_have_failover_slots(connection)):
        return []
    if _setting(connection, "synchronized_standby_slots"):
        return []
    standbys = [name for (name,) in connection.execute(_STANDBYS).fetchall()]
    if not standbys:
        return []
    message = "synchronized_standby_slots is empty: a failover to a standby that lags takes delivered changes back"
    names = ", ".join(name for name in standbys if name is not None)
    remedy = (
        f"ALTER SYSTEM SET synchronized_standby_slots = '{names}'; SELECT pg_reload_conf(); -- without slots of others "
        "than standbys"
        if names
        else "give the standby a slot (primary_slot_name), and name that slot in synchronized_standby_slots"
    )
    return [Finding("synchronized_standby_slots", Severity.WARNING, message, remedy)]
