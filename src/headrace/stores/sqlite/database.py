"""A SQLite file with the store's tables: opened, checked, migrated; one connection, one writer at a time.

The file is in WAL mode with full synchronisation: a write that returned survives kill -9 and a power cut. Several
processes may use it; each waits for the other's write, up to `BUSY_SECONDS`.

SQLite does not notice a flipped bit in a value. So every row has a checksum, kept by triggers, and a pipeline verifies
all of them, the layout and the file's structure when it opens its store.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from ...errors import RetryPolicy, StoreCorrupt, StoreError, StoreIoError
from ...lsn import Lsn
from ...private_files import OWNER_ONLY, create_file, grant
from ...remedies import is_disk_full, make_room
from ..migrations import Migration, migrations_of, pending, require_current
from ..sql import Execute, Row

__all__ = ["APPLICATION_ID", "SqliteDatabase", "is_made"]

T = TypeVar("T")

APPLICATION_ID = 0x48445243
"""Stands in the file's header ("HDRC") and tells a store from any other SQLite file."""

BUSY_SECONDS = 10.0
"""A write takes milliseconds; who waits longer waits for something that hangs."""
_WAL_PAUSE_SECONDS = 0.01

_ROW_CHECKSUM = "row_checksum"
_CHECKSUM = "checksum"
_LAYOUT = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name"
_DAMAGED = ("malformed", "no such column", "no such table", "decode to UTF-8")
"""Words of errors that SQLite raises for a damaged file as it does for a wrong statement."""


class SqliteDatabase:
    """Implements `sql.Database` on a file; unless it may `migrate`, one that is there and up to date."""

    def __init__(self, path: Path, *, migrate: bool) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        if migrate:
            _keep_private(path)
        with self._translated():
            # Every thread may use the connection: the lock admits one at a time.
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            _add_function(connection)
        try:
            with self._translated():
                self._prepare(connection, migrate=migrate)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def read(self, work: Callable[[Execute], T]) -> T:
        with self._lock, self._translated():
            return work(_execute_on(self._open()))

    def write(self, pipeline_id: int, work: Callable[[Execute], T]) -> T:
        """The whole file is locked: SQLite has one writer, whatever the pipeline."""
        del pipeline_id
        with self._lock, self._translated(), _transaction(self._open()) as connection:
            return work(_execute_on(connection))

    def lsn_parameter(self, lsn: Lsn) -> str:
        return f"{lsn:016X}"

    def lsn_result(self, value: str) -> Lsn:
        return Lsn(int(value, 16))

    def time_result(self, value: str) -> datetime:
        return datetime.fromisoformat(value)

    def close(self) -> None:
        with self._lock, self._translated():
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            msg = f"the store {self._path} is closed"
            raise StoreError(msg, hint="open a new one")
        return self._connection

    def _prepare(self, connection: sqlite3.Connection, *, migrate: bool) -> None:
        # The check comes first: a file that is not ours must not be changed, and switching to WAL changes it.
        self._check_owner(connection)
        connection.execute("PRAGMA synchronous = FULL")
        migrations = migrations_of("headrace.stores.sqlite")
        if not migrate:
            require_current(migrations, _version(connection), str(self._path))
            return
        self._verify(connection, migrations)
        _switch_to_wal(connection)
        if pending(migrations, _version(connection), str(self._path)):
            self._migrate(connection, migrations)

    def _verify(self, connection: sqlite3.Connection, migrations: tuple[Migration, ...]) -> None:
        """Raise StoreCorrupt for a file that is not as it was written: its structure, layout or a row."""
        connection.execute("BEGIN")
        try:
            version = _version(connection)
            problems = [row[0] for row in connection.execute("PRAGMA integrity_check(1)") if row[0] != "ok"]
            if not problems and _layout(connection) != _expected_layout(migrations[:version]):
                problems = [f"its tables are not those of version {version}"]
                if version > len(migrations) and _layout(connection) != _expected_layout(migrations):
                    return  # a later version's, which is refused as such
            if not problems:
                problems = [f"a row of {table} does not match its checksum" for table in _damaged_tables(connection)]
        except sqlite3.OperationalError as error:
            problems = [str(error)]
            if not any(words in problems[0] for words in (*_DAMAGED, "user-defined function")):
                raise
        finally:
            connection.execute("ROLLBACK")
        if problems:
            raise self._corrupt(problems[0])

    def _corrupt(self, detail: str) -> StoreCorrupt:
        problem = "cannot be read" if "not a database" in detail else "is damaged"
        return StoreCorrupt(f"the store {self._path} {problem}", detail=detail)

    def _migrate(self, connection: sqlite3.Connection, migrations: tuple[Migration, ...]) -> None:
        with _transaction(connection):
            # Asked again under the lock: another process may have migrated meanwhile.
            for migration in pending(migrations, _version(connection), str(self._path)):
                for statement in _statements(migration.sql):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {migration.version}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        # One transaction, so that both answers are of one moment: another process may be creating the store.
        connection.execute("BEGIN")
        empty = not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        connection.execute("COMMIT")
        if owner != APPLICATION_ID and not (owner == 0 and empty):
            msg = f"{self._path} is a SQLite file, but not a store of headrace"
            raise StoreCorrupt(msg, hint="choose another path for the store")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if any(words in str(error) for words in _DAMAGED):
                raise self._corrupt(str(error)) from error
            readonly = "readonly" in str(error)
            hint = "make the file and its directory writable" if readonly else None
            if is_disk_full(error):
                hint = make_room(self._path)
            retry = RetryPolicy.MANUAL if readonly else None
            msg = f"cannot use the store {self._path}"
            raise StoreIoError(msg, detail=str(error), hint=hint, retry=retry) from error
        except sqlite3.DatabaseError as error:
            raise self._corrupt(str(error)) from error
        except UnicodeDecodeError as error:
            # SQLite quotes a damaged name in a message.
            raise self._corrupt("a name or a text is not UTF-8") from error


def _keep_private(path: Path) -> None:
    """Let only the owner read and write the store. SQLite gives -wal and -shm the mode of the file itself."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        file = path.with_name(path.name + suffix)
        # Another process may remove its journal at any time.
        with suppress(FileNotFoundError):
            # One of another user's is for SQLite to refuse, if it may not be used.
            if file.stat().st_uid == os.geteuid():
                grant(file, OWNER_ONLY.file_mode, OWNER_ONLY)
    if not path.exists() and os.access(path.parent, os.W_OK | os.X_OK):
        # Where it cannot be created, SQLite says why.
        create_file(path)


def is_made(path: Path) -> bool:
    """Whether there is a file with anything in it: before its pipeline's first start has made the tables, none has."""
    if not path.is_file():
        return False
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as connection:
            return bool(connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall())
    except sqlite3.Error:
        # Whoever opens it is told what is wrong with it.
        return True


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """The one statement for which SQLite does not wait itself while another process opens the file too."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_PAUSE_SECONDS)
        else:
            return


def _add_function(connection: sqlite3.Connection) -> None:
    connection.create_function(_ROW_CHECKSUM, -1, _row_checksum, deterministic=True)


def _row_checksum(*values: object) -> int:
    return zlib.crc32(ascii(values).encode())


def _damaged_tables(connection: sqlite3.Connection) -> list[str]:
    """The tables with a row that does not match its checksum, of those that have checksums."""
    damaged = []
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        if _CHECKSUM in columns:
            values = ", ".join(column for column in columns if column != _CHECKSUM)
            different = f"{_CHECKSUM} IS NOT {_ROW_CHECKSUM}({values})"
            if connection.execute(f"SELECT 1 FROM {table} WHERE {different} LIMIT 1").fetchall():
                damaged.append(table)
    return damaged


def _layout(connection: sqlite3.Connection) -> list[Row]:
    return connection.execute(_LAYOUT).fetchall()


def _expected_layout(migrations: tuple[Migration, ...]) -> list[Row]:
    with closing(sqlite3.connect(":memory:")) as connection:
        _add_function(connection)
        for migration in migrations:
            for statement in _statements(migration.sql):
                connection.execute(statement)
        return _layout(connection)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    """The statements of a script. `executescript` is of no use: it commits what was begun."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        # Some errors (a full disk) have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _execute_on(connection: sqlite3.Connection) -> Execute:
    def execute(statement: str, *parameters: object) -> list[Row]:
        return connection.execute(_rendered(statement), parameters).fetchall()

    return execute


@lru_cache
def _rendered(statement: str) -> str:
    return statement.replace("@", "")
