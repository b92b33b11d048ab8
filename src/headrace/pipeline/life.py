"""One life of a pipeline: from the look at the source to the last progress stored."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import structlog

from ..config.pipeline import PipelineConfig, PipelineMode
from ..destinations.contract import Destination, DestinationContext
from ..errors import HeadraceError, PipelineError, SparkError
from ..lsn import INVALID_LSN, Lsn
from ..spark.labels import cancel
from ..stores.contract import PipelineStore
from ..stores.records import APPLY
from ..table_state import State
from ..telemetry.metrics import Metrics, MetricsServer
from .apply import ApplyLoop
from .build import build_engine
from .discovery import Discovery
from .lag_watch import LagWatch
from .source import Source
from .status import PipelineState, PipelineStatus, TableStatus
from .table_sync import TableSync
from .tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Life"]

_TURN_S = 0.2
_COPY_TURN_S = 0.02

_log = structlog.get_logger("headrace.pipeline")


class Life:
    """`begin`, `run`, `end`; the rest may be called from any thread meanwhile."""

    def __init__(
        self,
        config: PipelineConfig,
        store: PipelineStore,
        destination: Destination,
        spark: SparkSession | Any,
        stopping: threading.Event,
    ) -> None:
        self._engine = build_engine(config, store, destination, spark, stopping)
        self._loop: ApplyLoop | None = None
        self._lag: LagWatch | None = None
        self._discovery: Discovery | None = None
        self._server: MetricsServer | None = None
        self._opened = False

    @property
    def tables(self) -> Tables:
        return self._engine.tables

    @property
    def metrics(self) -> Metrics:
        return self._engine.metrics

    def begin(self) -> None:
        """Look at the source, open the destination, take up every table where it stands, start the receiver."""
        engine, config = self._engine, self._engine.config
        source = Source(config)
        published = source.tables()
        source.install()
        # Before the slot: a port that is taken, or a destination that does not open, must not leave one behind, which
        # keeps WAL for nobody.
        if config.metrics.enabled:
            self._server = engine.metrics.serve(config.metrics.host, config.metrics.port)
        engine.memory.start()
        self._opened = True
        engine.destination.startup(DestinationContext(config.id, engine.store, engine.spark, tuple(published)))
        source.prepare_slot(engine.store)
        engine.tables.load(published, engine.destination)
        if config.mode is PipelineMode.COPY_ONLY:
            for table in engine.tables.leaving():
                engine.tables.remove(table)
            for table in engine.tables.all():
                engine.tables.start_over(table)
            return
        engine.reception.start()
        self._discovery = Discovery(config, engine.tables, engine.destination)
        self._loop = ApplyLoop(engine, self._start_position(), self._discovery)
        self._discovery.start()
        self._lag = LagWatch(engine, self._loop)
        self._lag.start()
        tables = {state.value: count for state, count in engine.tables.counts().items() if count}
        _log.info("running", pipeline=config.id, lsn=str(self._loop.position), tables=tables)

    def run(self) -> None:
        """Until the pipeline is told to stop; a copy-only one until everything is copied."""
        if self._loop is not None:
            self._loop.run()
        elif not self._engine.stopping.is_set():
            self._copy_all()

    def end(self, *, after_error: bool = False) -> None:
        """Close everything, in the order in which it depends on each other."""
        if self._discovery is not None:
            self._discovery.close()
        if self._lag is not None:
            self._lag.close()
        self._engine.reception.stop()
        self._engine.memory.close()
        if self._server is not None:
            self._server.close()
        if self._opened:
            try:
                self._engine.destination.shutdown()
            except HeadraceError as error:
                if not after_error:
                    raise
                _log.warning("the destination did not close", error=str(error))

    def received(self, error: BaseException) -> bool:
        """Whether it is what ended the receiver."""
        return error is self._engine.reception.fatal

    def cancel_copies(self) -> None:
        self._cancel(self._engine.sync_tag)

    def cancel_all(self) -> None:
        """What is cut off is as after a crash: it is done again."""
        self._cancel(self._engine.sync_tag)
        self._cancel(self._engine.write_tag)

    def _cancel(self, tag: str) -> None:
        try:
            cancel(self._engine.spark, tag)
        except SparkError as error:
            _log.warning("jobs cannot be cancelled", error=str(error))

    def status(self, state: PipelineState) -> PipelineStatus:
        engine = self._engine
        tables = {
            table.name: TableStatus(
                table.name, table.state, table.position, table.copy.view(), table.retries.attempts, table.changes
            )
            for table in engine.tables.all()
        }
        applied = INVALID_LSN if self._loop is None else self._loop.durable
        lag = self._lag
        return PipelineStatus(
            state,
            tables,
            applied,
            engine.reception.status,
            None if lag is None else lag.bytes,
            None if lag is None else lag.seconds,
            engine.memory.used_ratio,
            engine.memory.active,
            None if lag is None else lag.spool_bytes,
        )

    def _start_position(self) -> Lsn:
        """Where the apply loop goes on: its stored progress, or where the receiver begins."""
        engine = self._engine
        while not engine.stopping.is_set():
            if engine.reception.wait(lambda status: status.covered > INVALID_LSN, _TURN_S):
                break
        stored = engine.store.get_progress(APPLY)
        return engine.reception.status.covered if stored is None else stored

    def _copy_all(self) -> None:
        engine = self._engine
        sync = TableSync(engine, lambda: INVALID_LSN)
        try:
            while not engine.stopping.is_set():
                sync.schedule()
                engine.stopping.wait(_COPY_TURN_S)
                waiting = [t for t in engine.tables.all() if t.busy or t.retries.due_at is not None]
                if not [t for t in waiting if t.state.state is not State.FINISHED_COPY]:
                    break
        finally:
            sync.close()
        failed = engine.tables.in_state(State.ERRORED)
        if failed:
            reasons = "; ".join(f"{table.name}: {table.state.reason}" for table in failed)
            msg = f"{len(failed)} of {len(engine.tables.all())} tables were not copied"
            raise PipelineError(msg, detail=reasons, hint=failed[0].state.solution)
