"""One destination's part of a life: its tables, its apply loop, its copies. A pipeline has a lane per destination."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence

import structlog

from ..config.pipeline import PipelineMode
from ..destinations.contract import DestinationContext
from ..errors import HeadraceError, PipelineError, SparkError, StoreFenced, StoreInUse
from ..lsn import INVALID_LSN, Lsn
from ..schema import ReplicatedTableSchema
from ..spark.labels import cancel
from ..stores.contract import LeasedStore
from ..stores.records import APPLY
from ..table_state import State
from .apply import ApplyLoop
from .build import build_engine
from .discovery import Discovery
from .engine import Engine
from .outlets import Outlet
from .shared import Shared
from .source import Source
from .status import TableStatus
from .table_sync import TableSync

__all__ = ["Lane"]

_TURN_S = 0.2
_COPY_TURN_S = 0.02
_LEASE_POLL_S = 1.0
_RENEWAL_INTERVAL_S = 5.0
"""A third of the time for which a lease lasts."""
_TELL_INTERVAL_S = 30.0

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
        self._lease = _Lease(self.engine, self.engine.store) if isinstance(self.engine.store, LeasedStore) else None

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
            source=Source(config).identity(engine.store),
            run_id=engine.run_id,
        )
        engine.destination.startup(context)

    def claim(self) -> None:
        """Take store and destination over from any earlier run, once the receiver holds the slot."""
        engine = self.engine
        while not engine.stopping.is_set():
            if _holds_slot(engine) and (self._lease is None or self._lease.take()):
                break
        if not engine.stopping.is_set():
            engine.destination.claim()
            Source(engine.config).keep_first_system_id(engine.store)

    def begin(self, published: Sequence[ReplicatedTableSchema], older_than_slot: Collection[int]) -> None:
        """Take up every table where it stands. The destination is claimed.

        `older_than_slot`: tables that were published before the slot was created, in this life.
        """
        engine, config = self.engine, self.engine.config
        if engine.stopping.is_set():
            return
        engine.tables.load(published, engine.destination, engine.batches.holds_since, older_than_slot)
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
        if self._lease is not None:
            self._lease.close()

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


def _holds_slot(engine: Engine) -> bool:
    """Wait a moment for the receiver to hold the slot; copies need none. Raises what ended the receiver."""
    return engine.config.mode is PipelineMode.COPY_ONLY or engine.reception.wait(lambda s: s.holds_slot, _TURN_S)


class _Lease:
    """Take the lease of a lane's store, and renew it in a thread of its own while the receiver holds the slot.

    Only then: if another run gets the slot while this one is cut off from the source, it shall get the lease too. The
    pipeline gives the lease up when it ends.
    """

    def __init__(self, engine: Engine, store: LeasedStore) -> None:
        self._engine, self._store = engine, store
        self._closing = threading.Event()
        self._tell_at = 0.0
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def take(self) -> bool:
        """Take the lease if it is free or has expired; otherwise say who holds it, wait a moment and return False."""
        try:
            self._store.take_lease(self._engine.fence.note)
        except StoreInUse as error:
            if time.monotonic() >= self._tell_at:
                _log.warning("waiting for the store", error=str(error), hint=error.hint)
                self._tell_at = time.monotonic() + _TELL_INTERVAL_S
            self._engine.stopping.wait(_LEASE_POLL_S)
            return False
        self._thread.start()
        return True

    def close(self) -> None:
        """Stop the renewal."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _renew(self) -> None:
        engine = self._engine
        streams = engine.config.mode is not PipelineMode.COPY_ONLY
        while not self._closing.wait(_RENEWAL_INTERVAL_S):
            if streams and not engine.reception.status.holds_slot:
                continue
            try:
                self._store.renew_lease()
            except StoreFenced:
                # The fence knows, and the lane ends by it.
                return
            except HeadraceError as error:
                _log.warning("the lease on the store cannot be renewed", error=str(error), hint=error.hint)
