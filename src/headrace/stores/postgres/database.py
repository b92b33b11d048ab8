"""A Postgres database with the store's tables: connected when needed, migrated once, connected again when dropped.

One connection, one statement at a time. Writes of one pipeline take turns across processes, by an advisory lock that
the transaction holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from ...errors import HeadraceError, StoreCorrupt, StoreError, StoreIoError
from ...lsn import Lsn
from ...schema import OWN_SCHEMA as SCHEMA
from ...schema import quote_identifier
from ...sqlstate import error_for_sqlstate
from ..migrations import migrations_of, pending, require_current
from ..sql import Execute, Row

__all__ = ["Connect", "PostgresDatabase"]

T = TypeVar("T")
Connection = psycopg.Connection[Any]
Connect = Callable[[], Connection]

# "HDRC" as a number: our part of the advisory locks, which all users of a database share.
_LOCKS = 0x48445243
# Asked of the tables, not by to_regclass: its cache need not know what another session committed during our wait.
_IS_THERE = (
    "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    f"WHERE n.nspname = '{SCHEMA}' AND c.relname = 'migration'"
)
# Whoever owns the schema or a table in it can have triggers and rules run with our rights.
_FOREIGN = f"""
SELECT o.object, r.rolname::pg_catalog.text, current_user::pg_catalog.text
FROM (
    SELECT pg_catalog.format('schema %%I', n.nspname) AS object, n.nspowner AS owner
    FROM pg_catalog.pg_namespace n WHERE n.nspname = '{SCHEMA}'
    UNION ALL
    SELECT pg_catalog.format('table %%I.%%I', n.nspname, c.relname), c.relowner
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{SCHEMA}'
) AS o JOIN pg_catalog.pg_roles r ON r.oid = o.owner
WHERE NOT r.rolsuper AND r.rolname <> current_user ORDER BY 1 LIMIT 1
"""
_LAYOUT = f"SELECT coalesce(pg_catalog.max(version), 0) FROM {SCHEMA}.migration"


# Functions and operators that other roles made must not run with the store's rights, whoever opened the connection. Per
# transaction: behind a pooler a session setting would reach other clients.
_SETTLE = (
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), "
    # Rows that a policy hides must not look as if they had never been stored.
    "pg_catalog.set_config('row_security', 'off', true)"
)
_TAKE_TURNS = "pg_catalog.pg_advisory_xact_lock(%s::pg_catalog.int4, pg_catalog.hashint8(%s::pg_catalog.int8))"


class PostgresDatabase:
    """Implements `sql.Database` on the schema `headrace`; unless it may `migrate`, one that is there and up to date."""

    def __init__(self, connect: Connect | str, *, migrate: bool) -> None:
        self._connect = _connect_to(connect) if isinstance(connect, str) else connect
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False
        self.guard: Callable[[Execute], object] | None = None
        """Called in the transaction of each write, before anything is written; what it raises prevents the write."""
        try:
            self._run(_migrate if migrate else _require_current)
        except BaseException:
            self.close()
            raise

    def read(self, work: Callable[[Execute], T]) -> T:
        def settled(connection: Connection) -> T:
            with connection.transaction():
                connection.execute(_SETTLE)
                return work(_execute_on(connection))

        return self._run(settled)

    def write(self, pipeline_id: int, work: Callable[[Execute], T], *, guarded: bool = True) -> T:
        def alone(connection: Connection) -> T:
            connection.execute(f"{_SETTLE}, {_TAKE_TURNS}", (_LOCKS, pipeline_id))
            execute = _execute_on(connection)
            if guarded and self.guard is not None:
                # A statement of its own: it must see what was committed while we waited for our turn.
                self.guard(execute)
            return work(execute)

        return self._run(lambda connection: _in_transaction(connection, alone))

    def lsn_parameter(self, lsn: Lsn) -> str:
        return str(lsn)

    def lsn_result(self, value: str) -> Lsn:
        return Lsn.parse(value)

    def time_result(self, value: datetime) -> datetime:
        return value.astimezone(UTC)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop_connection()

    def _run(self, work: Callable[[Connection], T]) -> T:
        with self._lock:
            return self._attempt(work, again=self._connection is not None)

    def _attempt(self, work: Callable[[Connection], T], *, again: bool) -> T:
        """Do the work; `again` on a new connection if the old one was lost before anything could be committed."""
        connection = self._open()
        try:
            return work(connection)
        except psycopg.Error as error:
            if not connection.closed:
                raise _translated(error) from error
            self._drop_connection()
            if not again or isinstance(error, _CommitFailed):
                raise _translated(error) from error
        return self._attempt(work, again=False)

    def _open(self) -> Connection:
        if self._closed:
            msg = "the store is closed"
            raise StoreError(msg, hint="open a new one")
        if self._connection is None:
            try:
                self._connection = self._connect()
                _prepare(self._connection)
            except psycopg.Error as error:
                self._drop_connection()
                raise _translated(error) from error
            except HeadraceError as error:
                msg = "cannot connect to the store's database"
                raise StoreIoError(msg, detail=str(error), hint=error.hint, retry=error.retry) from error
        return self._connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class _CommitFailed(psycopg.OperationalError):
    """The connection died over COMMIT: nobody knows whether it was done."""


def _prepare(connection: Connection) -> None:
    connection.autocommit = True
    # Poolers hand out another server session per transaction, where nothing is prepared.
    connection.prepare_threshold = None
    # The one form in which psycopg reads a timestamp, whatever the server is set to.
    connection.execute("SET datestyle TO ISO")


def _in_transaction(connection: Connection, work: Callable[[Connection], T]) -> T:
    finished = False
    try:
        with connection.transaction():
            result = work(connection)
            finished = True
    except psycopg.Error as error:
        if finished and connection.closed:
            raise _CommitFailed(str(error)) from error
        raise
    return result


def _migrate(connection: Connection) -> None:
    """Bring the schema up to date. One that is needs no right but to use it."""
    _refuse_foreign(connection)
    migrations = migrations_of("headrace.stores.postgres")
    if pending(migrations, _version(connection), _where(connection)):
        _in_transaction(connection, _apply_pending)


def _require_current(connection: Connection) -> None:
    _refuse_foreign(connection)
    require_current(migrations_of("headrace.stores.postgres"), _version(connection), _where(connection))


def _refuse_foreign(connection: Connection) -> None:
    """Raise StoreCorrupt if another role, not a superuser, owns the schema or a table in it."""
    rows = _fetch(connection, _FOREIGN, ())
    if rows:
        found, owner, role = rows[0]
        msg = f"{found} belongs to role {quote_identifier(owner)}, which could run code with the rights of the store"
        own = quote_identifier(role)
        hint = (
            f"if that role made it for this store, run as a superuser: ALTER SCHEMA {SCHEMA} OWNER TO {own}, and "
            f"ALTER TABLE … OWNER TO {own} for each table in it; else look at what is in it, then "
            f"DROP SCHEMA {SCHEMA} CASCADE"
        )
        raise StoreCorrupt(msg, detail=_where(connection), hint=hint)


def _apply_pending(connection: Connection) -> None:
    connection.execute(f"{_SETTLE}, pg_catalog.pg_advisory_xact_lock(%s)", (_LOCKS,))
    # Asked again under the lock: another process may have migrated meanwhile.
    version = _version(connection)
    if version == 0:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {SCHEMA}.migration "
            "(version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT pg_catalog.now())"
        )
        # Another role may have made either at the last moment.
        _refuse_foreign(connection)
    for migration in pending(migrations_of("headrace.stores.postgres"), version, _where(connection)):
        connection.execute(migration.sql.encode())
        done = f"INSERT INTO {SCHEMA}.migration (version, name) VALUES (%s, %s)"
        connection.execute(done, (migration.version, migration.name))


def _version(connection: Connection) -> int:
    return int(_fetch(connection, _LAYOUT)[0][0]) if _fetch(connection, _IS_THERE) else 0


def _where(connection: Connection) -> str:
    return f"schema {SCHEMA} of database {connection.info.dbname}"


def _fetch(connection: Connection, statement: str, parameters: tuple[object, ...] | None = None) -> list[Row]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def _connect_to(conninfo: str) -> Connect:
    return lambda: psycopg.connect(conninfo, autocommit=True, application_name="headrace_store")


def _execute_on(connection: Connection) -> Execute:
    return lambda statement, *parameters: _fetch(connection, _rendered(statement), parameters)


@lru_cache
def _rendered(statement: str) -> str:
    return statement.replace("@", f"{SCHEMA}.").replace("?", "%s")


def _translated(error: psycopg.Error) -> StoreIoError:
    """The store's error, with the remedy and retry rule that the SQLSTATE has at the source too."""
    kind = error_for_sqlstate(error.sqlstate)
    detail = error.diag.message_primary or " ".join(str(error).split())
    return StoreIoError("the store's database failed", detail=detail, hint=kind.hint, retry=kind.retry)
