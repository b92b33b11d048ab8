"""The one connection to the database: opened, lent to one thread at a time, given back if others are to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import duckdb
import pyarrow as pa
import structlog

from ...errors import PipelineStateError
from .failures import failure, is_broken, is_locked

__all__ = ["Database", "Place", "Session"]

_POLL_S = 0.05
"""Between two tries to open a file that another process has."""

_log = structlog.get_logger("headrace.destinations.duckdb")


class Place(Protocol):
    """Where a database is, and how it is reached."""

    kind: str
    """duckdb, motherduck or ducklake."""
    text: str
    """What it is called in messages."""
    name: str
    """What it is called in SQL."""
    secrets: Sequence[str]
    """What must not be shown, wherever it turns up."""

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A connection to which the database can be attached. Raises duckdb.Error, or a HeadraceError."""

    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the database usable under its name. Raises as `connect` does."""

    def keeping_files(self, connection: duckdb.DuckDBPyConnection, began_at: float) -> AbstractContextManager[None]:
        """Keep the files that a transaction has written since a time, while the block commits it and if that fails."""


class Session:
    """A connection, while it is lent; opened when it is used. Errors are DuckDB's own."""

    def __init__(self, connected: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._connected = connected

    def run(self, sql: str, values: Sequence[object] = ()) -> None:
        self._connected().execute(sql, list(values))

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._connected().execute(sql, list(values)).fetchall()

    @contextmanager
    def given(self, name: str, rows: pa.Table | pa.RecordBatchReader) -> Iterator[str]:
        """Rows as a table of this name, for statements inside. A reader can be read once."""
        connection = self._connected()
        connection.register(name, rows)
        try:
            yield name
        finally:
            connection.unregister(name)


class Database:
    """One connection and its lock. Calls come from many threads."""

    def __init__(self, place: Place, lock_timeout_s: float, *, release: bool) -> None:
        self.place = place
        self.on_failure: Callable[[], None] = lambda: None
        """Called when a transaction failed, before anybody else has the connection."""
        self.overflow: str | None = None
        """A directory for what is more than DuckDB's memory; None: DuckDB's own choice."""
        self._lock_timeout_s, self._release = lock_timeout_s, release
        self._lock = threading.RLock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._attached = False
        self._closed = True

    def open(self) -> None:
        with self._lock:
            self._closed = False
            try:
                self._connected()
            except BaseException:
                self._drop()
                raise

    def probe(self) -> None:
        """Open the database and let it go again, to tell early what is wrong. One that another process has is left."""
        try:
            connection = self._opened()
            try:
                self.place.attach(connection)
            finally:
                connection.close()
        except duckdb.Error as error:
            if not is_locked(error):
                raise failure(error, f"open {self.place.text}", self.place.secrets) from None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop()

    @contextmanager
    def transaction(self, doing: str) -> Iterator[Session]:
        """All or nothing. `doing` completes the sentence 'DuckDB failed to …'."""
        with self._lent(doing):
            connection = self._connected()
            began_at = time.time()
            connection.execute("BEGIN TRANSACTION")
            try:
                yield Session(lambda: connection)
                with self.place.keeping_files(connection, began_at):
                    self.commit(connection)
            except BaseException:
                self._roll_back(connection)
                self.on_failure()
                raise

    @contextmanager
    def look(self, doing: str) -> Iterator[Session]:
        """For statements that each stand alone."""
        with self._lent(doing):
            yield Session(self._connected)

    @contextmanager
    def _lent(self, doing: str) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except duckdb.Error as error:
                if is_broken(error):
                    # What comes next opens the database anew, and finds what was committed.
                    self._drop()
                raise failure(error, f"{doing} in {self.place.text}", self.place.secrets) from None
            finally:
                if self._release:
                    self._detach()

    def _connected(self) -> duckdb.DuckDBPyConnection:
        if self._closed:
            msg = f"the destination {self.place.kind} is not open"
            raise PipelineStateError(msg)
        if self._connection is None or not self._attached:
            self._connection = self._wait_for_it()
            self._attached = True
        return self._connection

    def _wait_for_it(self) -> duckdb.DuckDBPyConnection:
        """A reader in another process keeps us out for as long as it has the file."""
        deadline, told = time.monotonic() + self._lock_timeout_s, False
        while True:
            try:
                connection = self._connection = self._connection or self._opened()
                self.place.attach(connection)
                return connection
            except duckdb.Error as error:
                if not is_locked(error) or time.monotonic() >= deadline:
                    raise failure(error, f"open {self.place.text}", self.place.secrets) from None
            if not told:
                _log.info("waiting for another process that has the database open", database=self.place.text)
                told = True
            time.sleep(_POLL_S)

    def _opened(self) -> duckdb.DuckDBPyConnection:
        connection = self.place.connect()
        if self.overflow is not None:
            connection.execute("SET temp_directory = ?", [self.overflow])
        return connection

    @staticmethod
    def commit(connection: duckdb.DuckDBPyConnection) -> None:
        """Make what the transaction did durable, and visible, at once."""
        connection.execute("COMMIT")

    @staticmethod
    def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
        try:
            connection.execute("ROLLBACK")
        except duckdb.Error as error:
            # Ended already, by the error that is on its way.
            _log.debug("nothing to roll back", error=type(error).__name__)

    def _detach(self) -> None:
        """Let others have the file. What was committed goes into it before."""
        if self._connection is not None and self._attached:
            try:
                self._connection.execute(f"DETACH {self.place.name}")
                self._attached = False
            except duckdb.Error:
                self._drop()

    def _drop(self) -> None:
        connection, self._connection, self._attached = self._connection, None, False
        if connection is not None:
            connection.close()
