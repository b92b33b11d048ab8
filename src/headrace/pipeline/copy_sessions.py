"""Connections on which copies hold their snapshots, one copy after the other.

Of a thousand small tables each would otherwise spend most of its time, and most of what it costs the source, on a
connection of its own, which has to learn the catalog anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from ..config.pipeline import PipelineConfig
from ..postgres.snapshots import snapshot_session

__all__ = ["CopySessions"]

_IDLE_S = 2.0
"""Seconds after which one that nobody needs is closed."""


class CopySessions:
    """Lends connections to the threads that copy. A new one is opened when all are lent."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._idle: list[tuple[float, psycopg.Connection[Any]]] = []

    @contextmanager
    def lent(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection outside a transaction; what the block leaves open is rolled back. Raises SourceError."""
        connection = self._taken() or snapshot_session(self._config.pg_connection, pipeline=self._config.id)
        try:
            yield connection
            connection.rollback()
        except BaseException:
            # Whatever it was, the next copy shall not meet it.
            connection.close()
            raise
        with self._lock:
            self._idle.append((time.monotonic(), connection))

    def close_idle(self, seconds: float = _IDLE_S) -> None:
        """Close those that were not needed for a while."""
        if not self._idle:
            return
        with self._lock:
            since = time.monotonic() - seconds
            old = [connection for at, connection in self._idle if at <= since]
            self._idle = [(at, connection) for at, connection in self._idle if at > since]
        for connection in old:
            connection.close()

    def _taken(self) -> psycopg.Connection[Any] | None:
        """One that is idle and was not cut off meanwhile."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                _, connection = self._idle.pop()
            try:
                connection.execute("")
            except psycopg.Error:
                connection.close()
            else:
                return connection
