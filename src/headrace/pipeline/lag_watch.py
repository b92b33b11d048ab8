"""Looks at the source, the spool and the tables now and then, for metrics and status."""

from __future__ import annotations

import threading
import time

import structlog

from ..errors import HeadraceError
from ..lsn import Lsn
from ..postgres.connection import connect
from ..postgres.lag import slot_lag
from ..telemetry.metrics import Lag
from .apply import ApplyLoop
from .engine import Engine

__all__ = ["LagWatch"]

_LOCAL_INTERVAL_S = 1.0

_log = structlog.get_logger("headrace.lag")


class LagWatch:
    """A thread from `start` to `close`. The source is asked at the configured interval, the rest every second."""

    def __init__(self, engine: Engine, loop: ApplyLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)
        self._reconnects = 0
        self.bytes: int | None = None
        self.seconds: float | None = None
        self.spool_bytes: int | None = None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        due = 0.0
        while not self._closing.is_set():
            try:
                self._look_here()
                if time.monotonic() >= due:
                    due = time.monotonic() + self._engine.config.replication_lag_refresh_interval_ms / 1000
                    self._look_there()
            except HeadraceError as error:
                # The receiver and the apply loop meet the same trouble, and act on it.
                _log.debug("lag cannot be measured", error=str(error))
            self._closing.wait(_LOCAL_INTERVAL_S)

    def _look_here(self) -> None:
        engine, metrics, status = self._engine, self._engine.metrics, self._engine.reception.status
        metrics.tables(engine.tables.counts())
        metrics.memory_used(engine.memory.used_ratio)
        self.spool_bytes = engine.batches.size()
        metrics.spool_size(self.spool_bytes)
        positions = {"received": status.received, "spooled": status.spooled, "confirmed": status.confirmed}
        metrics.progress({**positions, "applied": self._loop.durable})
        restarts = engine.reception.restarts + status.reconnects
        metrics.receiver_reconnected(max(0, restarts - self._reconnects))
        self._reconnects = max(restarts, self._reconnects)
        waiting = engine.batches.segments(self._loop.durable) if status.spooled > self._loop.durable else []
        self.seconds = max(0.0, time.time() - waiting[0].modified) if waiting else 0.0

    def _look_there(self) -> None:
        engine, status = self._engine, self._engine.reception.status
        with connect(engine.config.pg_connection, "lag", pipeline=engine.config.id) as connection:
            lag = slot_lag(connection, engine.config.slot_name)
        engine.metrics.slot_retained(lag.retained_bytes)
        applied = max(self._loop.durable, status.covered if not self.seconds else Lsn(0))
        self.bytes = max(0, lag.wal_end - applied)
        engine.metrics.lag(
            Lag(
                received_bytes=max(0, lag.wal_end - status.received),
                flushed_bytes=max(0, lag.wal_end - status.covered),
                applied_bytes=max(0, status.spooled - self._loop.durable),
                end_to_end_bytes=self.bytes,
                seconds=self.seconds,
            )
        )
