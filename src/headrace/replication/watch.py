"""Looks whether the publication is still there, beside the stream.

From Postgres 18 on the server no longer complains about a publication that was dropped: it sends nothing and reads on.
Whoever took that for silence would confirm changes that were never sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from ..config.receiver import ReceiverConfig
from ..errors import HeadraceError, PublicationNotFound
from ..postgres.connection import connect
from ..postgres.publications import publication_exists

__all__ = ["PublicationWatch"]

INTERVAL_S = 5.0

_log = structlog.get_logger("headrace.receiver")


class PublicationWatch:
    """Asks every few seconds, in a thread and on a connection of its own, until closed."""

    def __init__(self, config: ReceiverConfig, changed: Callable[[], None]) -> None:
        self._config = config
        self._changed = changed
        self._closed = threading.Event()
        self.problem: PublicationNotFound | None = None
        self._thread = threading.Thread(target=self._run, name="publication-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(INTERVAL_S):
            try:
                self._look()
            except HeadraceError as error:
                # The stream notices a broken server by itself; here it only means that the question comes again.
                _log.debug("could not look for the publication", error=str(error))

    def _look(self) -> None:
        with connect(self._config.pg_connection, "watch", pipeline=self._config.pipeline_id) as connection:
            while self.problem is None:
                if not publication_exists(connection, self._config.publication_name):
                    self.problem = PublicationNotFound(f"publication {self._config.publication_name} does not exist")
                    self._changed()
                elif self._closed.wait(INTERVAL_S):
                    return
