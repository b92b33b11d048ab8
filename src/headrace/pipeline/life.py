"""One life of a pipeline: from the look at the source to the last progress stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..config.pipeline import PipelineConfig, PipelineMode
from ..errors import ConfigError, PipelineStateError, TableNotFound
from ..lsn import INVALID_LSN
from ..remedies import RESYNC, name_table
from ..telemetry.metrics import Metrics, MetricsServer
from .build import build_shared, prepare_directory
from .lag_watch import LagWatch
from .lane import Lane
from .lanes import Lanes, OneLane, SeveralLanes
from .outlets import Outlet
from .reception import Reception
from .source import Source
from .status import PipelineState, PipelineStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Life"]

_TURN_S = 0.2
_PORT_PATIENCE_S = 10.0


class Life:
    """`begin`, `run`, `end`; the rest may be called from any thread meanwhile."""

    def __init__(
        self,
        config: PipelineConfig,
        outlets: Sequence[Outlet],
        spark: SparkSession | Any,
        stopping: threading.Event,
    ) -> None:
        self._config, self._outlets, self._stopping = config, outlets, stopping
        self._source = Source(config)
        self._shared = build_shared(config, outlets, spark, stopping)
        self._lanes: Lanes = (
            SeveralLanes(self._shared, outlets, self._source.tables, stopping)
            if outlets[0].name
            else OneLane(self._shared, outlets[0], stopping)
        )
        self._lag: LagWatch | None = None
        self._server: MetricsServer | None = None

    @property
    def metrics(self) -> Metrics:
        return self._shared.metrics

    @property
    def reception(self) -> Reception:
        return self._shared.reception.receiver

    def begin(self) -> None:
        """Look at the source, open the destinations, take the slot, claim the destinations, take up every table.

        Until the receiver holds the slot, another run of this pipeline may be at work: nothing durable is changed.
        """
        config, shared = self._config, self._shared
        prepare_directory(config)
        published = self._source.tables()
        self._source.install()
        # Before the slot: a port that is taken, or a destination that does not open, must not leave one behind, which
        # keeps WAL for nobody.
        self._serve_metrics()
        shared.memory.start()
        self._lanes.open(published)
        if self._stopping.is_set():
            return
        created = self._source.prepare_slot([outlet.store for outlet in self._outlets], self._stopping)
        streams = config.mode is not PipelineMode.COPY_ONLY
        # Copies that no stream follows need not wait for anybody either.
        older_than_slot = {schema.table.id for schema in published} if created or not streams else set[int]()
        if streams:
            self.reception.start()
            if not self._await_slot():
                return
            self._serve_metrics()
            # The publication may have changed while we waited.
            published = self._source.tables()
        else:
            self._source.require_idle_slot()
        self._lanes.begin(published, older_than_slot)
        if streams:
            self._lag = LagWatch(shared, self._lanes)
            self._lag.start()

    def _serve_metrics(self) -> None:
        """Serve metrics. A port that the run before us still has is free a moment after the slot is."""
        settings = self._config.metrics
        deadline = time.monotonic() + _PORT_PATIENCE_S
        while settings.enabled and self._server is None and not self._stopping.is_set():
            try:
                self._server = self._shared.metrics.serve(settings.host, settings.port)
            except ConfigError:
                if not self.reception.status.holds_slot and self._source.slot_holder() is not None:
                    return
                if not self.reception.status.holds_slot or time.monotonic() >= deadline:
                    raise
                self._stopping.wait(_TURN_S)

    def _await_slot(self) -> bool:
        """Wait until the receiver holds the slot; it tells in its log who holds it meanwhile. False: we are stopped."""
        while not self._stopping.is_set():
            if self.reception.wait(lambda status: status.holds_slot, _TURN_S):
                return True
        return False

    def run(self) -> None:
        """Until the pipeline is told to stop; a copy-only one until everything is copied."""
        self._lanes.run()

    def end(self, *, after_error: bool = False) -> None:
        """Close everything, in the order in which it depends on each other."""
        self._lanes.close()
        if self._lag is not None:
            self._lag.close(failed=after_error)
        self.reception.stop()
        self._shared.memory.close()
        if self._server is not None:
            self._server.close()
        self._lanes.shut(after_error=after_error)

    def received(self, error: BaseException) -> bool:
        """Whether it is what ended the receiver."""
        return error is self.reception.fatal

    def stop(self) -> None:
        """Tell the lanes to end. Returns at once."""
        self._lanes.stop()

    def cancel_copies(self) -> None:
        """At a stop. First the lanes are told: what their jobs raise then says nothing about their tables."""
        self._lanes.stop()
        for lane in self._lanes.all():
            lane.cancel_copies()

    def cancel_all(self) -> None:
        for lane in self._lanes.all():
            lane.cancel_all()

    def lanes(self, table: str, destination: str | None) -> list[Lane]:
        """Those that have a table, or the one that is named; the first if none has. Raises PipelineStateError."""
        running = {lane.name: lane for lane in self._lanes.running()}
        names = [lane.name for lane in self._lanes.all()]
        if destination is not None and destination not in names:
            msg = f"this pipeline has no destination {destination}"
            raise PipelineStateError(msg, hint=f"it has {', '.join(filter(None, names)) or 'one, without a name'}")
        wanted = names if destination is None else [destination]
        for name in wanted:
            if name not in running:
                msg = f"destination {name} is not running"
                raise PipelineStateError(
                    msg, hint=f"name another; or ask for it, which it takes up later: {name_table(RESYNC, table, name)}"
                )
        return [running[name] for name in wanted if _has(running[name], table)] or [running[wanted[0]]]

    def status(self, state: PipelineState) -> PipelineStatus:
        lanes = self._lanes.all()
        bytes_behind = [lane.lag_bytes for lane in lanes if lane.lag_bytes is not None]
        seconds_behind = [lane.lag_seconds for lane in lanes if lane.lag_seconds is not None]
        return PipelineStatus(
            state,
            {table.key: table for lane in lanes for table in lane.table_statuses()},
            min((lane.applied for lane in lanes), default=INVALID_LSN),
            self.reception.status,
            max(bytes_behind, default=None),
            max(seconds_behind, default=None),
            self._shared.memory.used_ratio,
            self._shared.memory.active,
            None if self._lag is None else self._lag.spool_bytes,
            self._lanes.statuses(),
        )


def _has(lane: Lane, table: str) -> bool:
    try:
        lane.engine.tables.named(table)
    except TableNotFound:
        return False
    return True
