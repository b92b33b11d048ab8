"""Watches publication and slot beside the stream.

From Postgres 18 on the server no longer complains about a publication that was dropped: it sends nothing and reads on.
Whoever took that for silence would confirm changes that were never sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import structlog

from ..config.receiver import ReceiverConfig
from ..errors import HeadraceError, PublicationNotFound
from ..postgres.connection import connect
from ..postgres.publications import publication_exists
from ..postgres.slots import slot_state
from .source_history import SourceHistory

__all__ = ["SourceWatch"]

INTERVAL_S = 5.0

_log = structlog.get_logger("headrace.receiver")


class SourceWatch:
    """Asks every few seconds, in a thread and on a connection of its own, until closed."""

    def __init__(self, config: ReceiverConfig, changed: Callable[[], None], history: SourceHistory) -> None:
        self._config = config
        self._history = history
        self._changed = changed
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self.problem: PublicationNotFound | None = None
        self._thread = threading.Thread(target=self._run, name="source-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def reconnect(self) -> None:
        """Make the thread give up its connection, because it may wait for an answer that never comes."""
        with self._lock:
            if self._connection is not None and not self._connection.closed:
                # Closing it from here would pull the descriptor away under the thread that waits for it.
                with socket.socket(fileno=os.dup(self._connection.fileno())) as copy, contextlib.suppress(OSError):
                    copy.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while not self._closed.wait(INTERVAL_S):
            try:
                self._look()
            except HeadraceError as error:
                # The stream notices a broken server by itself; here it only means that the question comes again.
                _log.debug("could not look at publication and slot", error=str(error))

    def _look(self) -> None:
        with (
            connect(self._config.pg_connection, "watch", pipeline=self._config.pipeline_id) as connection,
            self._known(connection),
        ):
            while self.problem is None:
                if not publication_exists(connection, self._config.publication_name):
                    self.problem = PublicationNotFound(f"publication {self._config.publication_name} does not exist")
                    self._changed()
                    return
                self._history.observe(slot_state(connection, self._config.slot_name))
                if self._closed.wait(INTERVAL_S):
                    return

    @contextlib.contextmanager
    def _known(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        with self._lock:
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None
