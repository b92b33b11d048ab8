"""One destination's part of a life: its tables, its apply loop, its copies. A pipeline has a lane per destination."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from ..config.pipeline import PipelineMode
from ..destinations.contract import DestinationContext
from ..errors import HeadraceError, PipelineError, SparkError
from ..lsn import INVALID_LSN, Lsn
from ..schema import ReplicatedTableSchema
from ..spark.labels import cancel
from ..stores.records import APPLY
from ..table_state import State
from .apply import ApplyLoop
from .build import build_engine
from .discovery import Discovery
from .outlets import Outlet
from .shared import Shared
from .source import Source
from .status import TableStatus
from .table_sync import TableSync

__all__ = ["Lane"]

_TURN_S = 0.2
_COPY_TURN_S = 0.02

_log = structlog.get_logger("headrace.pipeline")


class Lane:
    """`open`, `begin`, `run`, `close`, `shut`, in one thread and once; the rest may be called from any meanwhile."""

    def __init__(self, shared: Shared, outlet: Outlet, stopping: threading.Event) -> None:
        self.engine = build_engine(shared, outlet, stopping)
        self.loop: ApplyLoop | None = None
        self.lag_bytes: int | None = None
        """Told by the watch, and so is the next."""
        self.lag_seconds: float | None = None
        self._discovery: Discovery | None = None
        self._opened = False

    @property
    def name(self) -> str:
        return self.engine.lane

    @property
    def applied(self) -> Lsn:
        return INVALID_LSN if self.loop is None else self.loop.durable

    def open(self, published: Sequence[ReplicatedTableSchema]) -> None:
        """Open the destination."""
        engine, config = self.engine, self.engine.config
        self._opened = True
        context = DestinationContext(
            config.id,
            engine.store,
            engine.spark,
            tuple(published),
            config.quarantine,
            source=Source(config).identity(),
            run_id=engine.run_id,
        )
        engine.destination.startup(context)

    def claim(self) -> None:
        """Take the destination over from any earlier run, once the receiver holds the slot."""
        engine = self.engine
        if engine.config.mode is not PipelineMode.COPY_ONLY:
            while not engine.stopping.is_set() and not engine.reception.wait(lambda s: s.holds_slot, _TURN_S):
                pass
        if not engine.stopping.is_set():
            engine.destination.claim()

    def begin(self, published: Sequence[ReplicatedTableSchema]) -> None:
        """Take up every table where it stands. The destination is claimed."""
        engine, config = self.engine, self.engine.config
        if engine.stopping.is_set():
            return
        engine.tables.load(published, engine.destination, engine.batches.holds_since)
        if config.mode is PipelineMode.COPY_ONLY:
            for table in engine.tables.leaving():
                engine.tables.remove(table)
            for table in engine.tables.all():
                engine.tables.start_over(table)
            return
        self._discovery = Discovery(engine)
        self.loop = ApplyLoop(engine, self._start_position(), self._discovery)
        self._discovery.start()
        # At once, not with the first batch: a receiver whose quota is used up waits for this, and none may come before.
        engine.announce(self.loop.durable)
        engine.metrics.destination_running(True)
        tables = {state.value: count for state, count in engine.tables.counts().items() if count}
        _log.info("running", pipeline=config.id, lsn=str(self.loop.position), tables=tables)

    def run(self) -> None:
        """Until it is told to stop; one that only copies until everything is copied."""
        if self.loop is not None:
            self.loop.run()
        elif not self.engine.stopping.is_set():
            self._copy_all()

    def close(self) -> None:
        """Look for nothing new any more."""
        if self._discovery is not None:
            self._discovery.close()

    def shut(self, *, after_error: bool = False) -> None:
        """Close the destination. Raises what it raises, unless that would hide another error."""
        if not self._opened:
            return
        self.engine.metrics.destination_running(False)
        try:
            self.engine.destination.shutdown()
        except HeadraceError as error:
            if not after_error:
                raise
            _log.warning("the destination did not close", error=str(error))

    def stop(self) -> None:
        self.engine.stopping.set()

    def cancel_copies(self) -> None:
        self._cancel(self.engine.sync_tag)

    def cancel_all(self) -> None:
        """What is cut off is as after a crash: it is done again."""
        self._cancel(self.engine.sync_tag)
        self._cancel(self.engine.write_tag)

    def _cancel(self, tag: str) -> None:
        try:
            cancel(self.engine.spark, tag)
        except SparkError as error:
            _log.warning("jobs cannot be cancelled", error=str(error))

    def table_statuses(self) -> list[TableStatus]:
        return [
            TableStatus(
                table.name,
                table.state,
                table.position,
                table.copy.view(),
                table.retries.attempts,
                table.changes,
                self.name,
            )
            for table in self.engine.tables.all()
        ]

    def _start_position(self) -> Lsn:
        """Where the apply loop goes on: its stored progress, or where the receiver begins."""
        engine = self.engine
        while not engine.stopping.is_set():
            if engine.reception.wait(lambda status: status.covered > INVALID_LSN, _TURN_S):
                break
        stored = engine.store.get_progress(APPLY)
        return engine.reception.status.covered if stored is None else stored

    def _copy_all(self) -> None:
        engine = self.engine
        sync = TableSync(engine, lambda: INVALID_LSN)
        try:
            while not engine.stopping.is_set():
                engine.fence.check()
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
