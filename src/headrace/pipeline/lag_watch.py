"""Watch the source, the spool and the tables, for metrics, status, and the heartbeat that other processes read."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import UTC, datetime

import structlog

from ..errors import HeadraceError
from ..lsn import Lsn
from ..postgres.connection import connect
from ..postgres.lag import slot_lag
from ..spark.labels import JavaPulse
from ..stores.records import Heartbeat
from ..table_state import State
from ..telemetry.metrics import Lag
from .lane import Lane
from .lanes import Lanes
from .shared import Shared
from .tables import Table

__all__ = ["LagWatch"]

_LOCAL_INTERVAL_S = 1.0
_HEARTBEAT_INTERVAL_S = 5.0
_JAVA_SILENT_AFTER_S = 30.0
"""Java answers every five seconds, unless it is frozen or collects garbage for that long."""

_log = structlog.get_logger("headrace.lag")


class LagWatch:
    """Run a thread from `start` to `close`: poll the source at the configured interval, the rest every second."""

    def __init__(self, shared: Shared, lanes: Lanes) -> None:
        self._shared = shared
        self._lanes = lanes
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)
        self._java = JavaPulse()
        self._reconnects = 0
        self.spool_bytes: int | None = None

    def start(self) -> None:
        self._java.start()
        self._thread.start()

    def close(self, *, failed: bool = False) -> None:
        """Stop the thread, and leave a last heartbeat that says how the pipeline ended."""
        self._closing.set()
        self._java.close()
        if self._thread.ident is not None:
            self._thread.join()
            self._send_heartbeats("failed" if failed else "stopped")

    def _run(self) -> None:
        due = heartbeat_due = 0.0
        while not self._closing.is_set():
            if time.monotonic() >= heartbeat_due:
                heartbeat_due = time.monotonic() + _HEARTBEAT_INTERVAL_S
                self._send_heartbeats("running")
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
        oldest = [waiting[0].modified] if waiting else []
        oldest += [modified for table in lane.engine.tables.in_state(State.ERRORED)
                   if (modified := self._oldest_change(lane, table)) is not None]  # fmt: skip
        lane.lag_seconds = max(0.0, time.time() - min(oldest)) if oldest else 0.0

    @staticmethod
    def _oldest_change(lane: Lane, table: Table) -> float | None:
        """Return when the oldest change that a failed table has yet to apply was spooled, if there is one."""
        batches = lane.engine.batches
        for segment in batches.segments(table.position) if table.copied else ():
            if batches.has_changes(table.id, [segment]):
                return segment.modified
        return None

    def _send_heartbeats(self, state: str) -> None:
        """Store what this process knows of itself, for every destination that has a store of its own."""
        receiver = self._shared.reception.receiver
        status, statuses = receiver.status, self._lanes.statuses()
        for lane in self._lanes.all():
            of_lane = statuses.get(lane.name)
            problem, hint = self._problem()
            failure = None if lane.loop is None else lane.loop.problem
            if failure is not None:
                problem, hint = str(failure), failure.hint
            if of_lane is not None and of_lane.error is not None:
                problem, hint = of_lane.error, of_lane.hint
            heartbeat = Heartbeat(
                datetime.now(UTC),
                socket.gethostname(),
                os.getpid(),
                state if of_lane is None or state != "running" else of_lane.state.value,
                status.state,
                round(receiver.silent_s, 1),
                lane.applied,
                problem if state == "running" else None,
                hint if state == "running" else None,
                receiver.pid,
            )
            try:
                lane.engine.store.store_heartbeat(heartbeat)
            except HeadraceError as error:
                # Whoever writes progress meets the same trouble, and reports it.
                _log.debug("the heartbeat cannot be stored", error=str(error))

    def _problem(self) -> tuple[str | None, str | None]:
        """Name what holds up the receiver or Spark, and what to do about it."""
        if self._java.silent_s >= _JAVA_SILENT_AFTER_S:
            hint = (
                "look at the process; if it does not go on, end it: then the pipeline ends as well, and continues when "
                "it is started again"
            )
            return f"{self._java.process} has not answered for {self._java.silent_s:.0f} s", hint
        status, quota = self._shared.reception.receiver.status, self._shared.config.spool.quota_bytes
        if status.problem is not None:
            return str(status.problem), status.problem.hint
        if status.state == "paused" and status.unapplied_bytes >= quota:
            msg = (
                f"the spool holds {status.unapplied_bytes} bytes that are not applied, and spool.quota_bytes is {quota}"
            )
            return msg, "look at the tables and destinations that are behind; or raise spool.quota_bytes"
        return None, None

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
