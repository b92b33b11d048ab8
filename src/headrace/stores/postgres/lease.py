"""The lease on a pipeline's part of a Postgres store: a row with the holder and the time at which it expires.

Not an advisory lock of a session: behind a pooler, sessions are shared between clients; a half-open connection would
keep the lock of a dead process for hours; and a process that only lost its connection would lose the lock without being
told. A row does not depend on connections, and only the server's clock is asked.

Expiry does no more than let another run take the lease. Until one does, the holder goes on, however late it renews.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from uuid import uuid4

from ...errors import StoreError, StoreFenced, StoreInUse
from ..sql import Execute, Row
from .database import PostgresDatabase

__all__ = ["LEASE_S", "Lease"]

LEASE_S = 15.0
"""How long a lease lasts that is not renewed."""

_HOLDER = "SELECT token, host, pid, since, expires_at > pg_catalog.clock_timestamp() FROM @lease WHERE pipeline_id = ?"
_EXPIRY = "pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => ?)"
_TAKE = (
    "INSERT INTO @lease (pipeline_id, token, host, pid, since, expires_at) "
    f"VALUES (?, ?, ?, ?, pg_catalog.clock_timestamp(), {_EXPIRY}) ON CONFLICT (pipeline_id) DO UPDATE SET "
    "token = excluded.token, host = excluded.host, pid = excluded.pid, since = excluded.since, "
    "expires_at = excluded.expires_at"
)
_RENEW = f"UPDATE @lease SET expires_at = {_EXPIRY} WHERE pipeline_id = ? AND token = ?"
_RELEASE = "DELETE FROM @lease WHERE pipeline_id = ? AND token = ?"


class Lease:
    """One run's part in the lease of a pipeline. `renew` may be called from any thread."""

    def __init__(self, database: PostgresDatabase, pipeline_id: int) -> None:
        self._database, self._pipeline = database, pipeline_id
        self._token = uuid4().hex
        self._lock = threading.Lock()
        self._on_lost: Callable[[StoreFenced], None] | None = None
        """Set while the lease is held and not known to be lost."""

    def take(self, on_lost: Callable[[StoreFenced], None]) -> None:
        """Take the lease, or keep it. Raises StoreInUse if another run holds it."""

        def take(execute: Execute) -> None:
            holder = self._holder(execute)
            if holder is not None and holder[0] != self._token and holder[4]:
                msg = "another run of this pipeline holds the store"
                raise StoreInUse(msg, detail=_described(holder))
            execute(_TAKE, self._pipeline, self._token, socket.gethostname(), os.getpid(), LEASE_S)

        # Also if it is not free: this store writes nothing without it from now on.
        self._database.guard = self._check
        self._database.write(self._pipeline, take, guarded=False)
        with self._lock:
            self._on_lost = on_lost

    def renew(self) -> None:
        """Let it expire later. Raises StoreFenced if it is lost."""
        self._database.write(self._pipeline, lambda execute: execute(_RENEW, LEASE_S, self._pipeline, self._token))

    def release(self) -> None:
        """Give it up, if it is held; if the database cannot be reached, it expires."""
        if self._database.guard is None:
            return
        # A store that has lost its lease stays closed to writes.
        with suppress(StoreError):
            self._database.write(self._pipeline, lambda execute: execute(_RELEASE, self._pipeline, self._token))
            self._database.guard = None

    def _check(self, execute: Execute) -> None:
        """Raise StoreFenced, in the transaction of a write, if the lease is another run's."""
        holder = self._holder(execute)
        if holder is not None and holder[0] == self._token:
            return
        detail = "its lease was deleted" if holder is None else f"the lease is held by {_described(holder)}"
        error = StoreFenced("another run of this pipeline has taken over the store", detail=detail)
        with self._lock:
            on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost(error)
        raise error

    def _holder(self, execute: Execute) -> Row | None:
        rows = execute(_HOLDER, self._pipeline)
        return rows[0] if rows else None


def _described(holder: Row) -> str:
    _, host, pid, since, _ = holder
    assert isinstance(since, datetime)
    return f"process {pid} on {host}, since {since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
