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
from .lane import Lane
from .lanes import Lanes
from .shared import Shared

__all__ = ["LagWatch"]

_LOCAL_INTERVAL_S = 1.0

_log = structlog.get_logger("headrace.lag")


class LagWatch:
    """A thread from `start` to `close`. The source is asked at the configured interval, the rest every second."""

    def __init__(self, shared: Shared, lanes: Lanes) -> None:
        self._shared = shared
        self._lanes = lanes
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)
        self._reconnects = 0
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
                    due = time.monotonic() + self._shared.config.replication_lag_refresh_interval_ms / 1000
                    self._look_there()
            except HeadraceError as error:
                # The receiver and the apply loop meet the same trouble, and act on it.
                _log.debug("lag cannot be measured", error=str(error))
            self._closing.wait(_LOCAL_INTERVAL_S)

    def _look_here(self) -> None:
        shared, metrics, receiver = self._shared, self._shared.metrics, self._shared.reception.receiver
        status = receiver.status
        metrics.memory_used(shared.memory.used_ratio)
        lanes = self._lanes.all()
        self.spool_bytes = lanes[0].engine.batches.size()
        metrics.spool_size(self.spool_bytes)
        metrics.progress({"received": status.received, "spooled": status.spooled, "confirmed": status.confirmed})
        restarts = receiver.restarts + status.reconnects
        metrics.receiver_reconnected(max(0, restarts - self._reconnects))
        self._reconnects = max(restarts, self._reconnects)
        for lane in lanes:
            self._look_at(lane, status.spooled)

    def _look_at(self, lane: Lane, spooled: Lsn) -> None:
        metrics = lane.engine.metrics
        metrics.tables(lane.engine.tables.counts())
        if lane.loop is None:
            return
        metrics.progress({"applied": lane.applied})
        waiting = lane.engine.batches.segments(lane.applied) if spooled > lane.applied else []
        lane.lag_seconds = max(0.0, time.time() - waiting[0].modified) if waiting else 0.0

    def _look_there(self) -> None:
        config, status = self._shared.config, self._shared.reception.receiver.status
        with connect(config.pg_connection, "lag", pipeline=config.id) as connection:
            lag = slot_lag(connection, config.slot_name)
        self._shared.metrics.slot_retained(lag.retained_bytes)
        received = max(0, lag.wal_end - status.received)
        flushed = max(0, lag.wal_end - status.covered)
        lanes = self._lanes.all()
        if lanes[0].engine.metrics is not self._shared.metrics:
            self._shared.metrics.lag(Lag(received, flushed))
        for lane in (lane for lane in lanes if lane.loop is not None):
            applied = max(lane.applied, status.covered if not lane.lag_seconds else Lsn(0))
            lane.lag_bytes = max(0, lag.wal_end - applied)
            behind = max(0, status.spooled - lane.applied)
            alone = lane.engine.metrics is self._shared.metrics
            lane.engine.metrics.lag(
                Lag(
                    received_bytes=received if alone else None,
                    flushed_bytes=flushed if alone else None,
                    applied_bytes=behind,
                    end_to_end_bytes=lane.lag_bytes,
                    seconds=lane.lag_seconds,
                )
            )
