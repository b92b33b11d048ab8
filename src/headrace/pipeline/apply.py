"""The apply loop: batch after batch, for all tables that are in step.

A batch: 1. take the segments that follow, up to size and age; 2. write each table's part, tables side by side, or all
in one call; 3. a table that failed leaves, its position stored; 4. when everything is durable, store the progress;
5. tables that came along are Ready; 6. tell the receiver, which confirms to Postgres and releases segments.
The receiver meanwhile receives what comes next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from ..errors import (
    HeadraceError,
    RetryPolicy,
    SpoolCorrupt,
    SpoolGap,
    SpoolIoError,
    StoreIoError,
    TableSchemaChanged,
    UnrepresentableKey,
)
from ..lsn import Lsn
from ..spool import Segment
from ..stores.records import APPLY
from ..table_state import State
from .catching_up import within
from .discovery import Discovery
from .engine import Engine, TableRead
from .failpoint import reach
from .requests import Requests
from .retries import table_retries
from .spool_relief import relieve_spool
from .table_sync import TableSync, as_table_error
from .tables import Table

__all__ = ["ApplyLoop"]

_IDLE_S = 0.1
_OUTAGE_S = 2.0
_RELIEF_INTERVAL_S = 10.0
_FLUSH_AFTER_BATCHES = 16
_STREAMING = (State.READY, State.SYNC_DONE)
_PROGRESS_INTERVAL_S = 60.0
"""How often progress is stored when nothing of ours was in the batches: a store in the source database writes WAL."""

_log = structlog.get_logger("headrace.apply")


class ApplyLoop:
    """Runs in one thread until the pipeline stops. `position` and `problem` may be read from any."""

    def __init__(self, engine: Engine, start: Lsn, discovery: Discovery) -> None:
        self._engine = engine
        self._discovery = discovery
        self.position = start
        """Where the last batch ended."""
        self.durable = start
        """Up to where everything is durable."""
        self._stored = start
        """Up to where that is stored: nothing from here on may be released, for a restart begins here."""
        self._sync = TableSync(engine, lambda: self.position)
        self._writers = ThreadPoolExecutor(16, "write", partial(engine.label_thread, engine.write_tag))
        self._unflushed = 0
        self._told: Lsn | None = None
        """What the store was told last."""
        self._oldest = 0.0
        """When the first segment of the batch was published."""
        self._requests = Requests(engine.store, engine.tables)
        self.problem: HeadraceError | None = None
        """Why the last batch could not be written or stored; it is tried again."""
        self._relief_due = time.monotonic()
        self._stored_at = time.monotonic()
        self._retries = table_retries(engine.config)

    def run(self) -> None:
        self._engine.label_thread(self._engine.write_tag)
        try:
            while not self._engine.stopping.is_set():
                try:
                    self._turn()
                    if isinstance(self.problem, (StoreIoError, SpoolIoError)):
                        self.problem = None
                except (StoreIoError, SpoolIoError) as error:
                    self.problem = error
                    # Nothing was confirmed that is not stored: the next turn takes it from there.
                    _log.warning("trying again", error=str(error), hint=error.hint, seconds=_OUTAGE_S)
                    self._engine.stopping.wait(_OUTAGE_S)
            self._flush()
        except BaseException:
            self._engine.abandon()
            raise
        finally:
            self._sync.close()
            self._writers.shutdown(wait=True)

    def _turn(self) -> None:
        self._engine.fence.check()
        self._requests.look()
        self._discovery.take_up(self.durable, self._reached())
        self._sync.schedule()
        if time.monotonic() >= self._relief_due:
            relieve_spool(self._engine)
            self._relief_due = time.monotonic() + _RELIEF_INTERVAL_S
        members = self._members()
        self._settle(members)
        chosen = self._next(members)
        if chosen is None:
            return
        end, size = chosen
        started = time.monotonic()
        if self._apply(members, end):
            self._engine.metrics.batch_applied(time.monotonic() - started, size)
            if size:
                self._sync.courtesy.applied(max(0.0, time.time() - self._oldest), alone=self._sync.idle)

    def _reached(self) -> Lsn:
        """Before this there is nothing that was not applied: behind the last segment nothing came for a while."""
        status = self._engine.reception.status
        return max(self.durable, status.covered) if status.spooled <= self.durable else self.durable

    def _members(self) -> list[Table]:
        """The tables of the next batch. One that was given up, though it streamed, only waits to be removed."""
        streaming = [table for table in self._engine.tables.in_state(*_STREAMING) if table.copied]
        return [table for table in streaming if not table.busy and not self._sync.lags(table)]

    def _settle(self, members: list[Table]) -> None:
        """Tables that stand exactly where everything is durable are in step without a batch of their own."""
        arrived = [t for t in members if t.own_progress and not t.pending and t.position == self.durable]
        if arrived:
            self._have_stored(self.durable)
            self._engine.tables.in_step(arrived)
            # They held back what may be confirmed and released; there may be no batch for long that tells so.
            self._engine.announce(self._stored)

    def _next(self, members: list[Table]) -> tuple[Lsn, int] | None:
        """Where the next batch ends, and how many bytes are new in it; None: nothing to do yet."""
        behind = any(table.written < self.position for table in members)
        ahead = [table.written for table in members if table.written > self.position]
        engine = self._engine
        news = engine.reception.wait(lambda status: status.spooled > self.position, 0 if behind else _IDLE_S)
        if engine.memory.active:
            engine.memory.wait_until_resumed(_IDLE_S)
        if not news:
            self._flush()
            self._store_when_idle()
            if ahead and engine.reception.status.covered >= min(ahead):
                # Nothing lies between: the loop may stand where the table stands.
                return min(ahead), 0
            return (self.position, 0) if behind else None
        segments = self._segments()
        some = within(segments, self._sync.budget)
        full = len(some) < len(segments)
        self._oldest = some[0].modified
        age_ms = (time.time() - self._oldest) * 1000
        wait_ms = engine.config.batch.max_fill_ms - age_ms
        if not full and 0 < wait_ms <= engine.config.batch.max_fill_ms and not engine.stopping.is_set():
            engine.stopping.wait(min(_IDLE_S, wait_ms / 1000))
            return None
        return some[-1].end, sum(segment.size for segment in some)

    def _segments(self) -> list[Segment]:
        """Return what follows the position. Raises SpoolGap if the spool lacks what the receiver has spooled."""
        segments = self._engine.batches.segments(self.position)
        spooled = self._engine.reception.status.spooled
        if not segments and spooled > self.position:
            msg = f"the spool has nothing between {self.position} and {spooled}"
            raise SpoolGap(msg, detail="its directory or its segments were lost")
        return segments

    def _apply(self, members: list[Table], end: Lsn) -> bool:
        engine = self._engine
        oldest = min((table.written for table in members), default=end)
        segments = [s for s in engine.batches.segments(oldest, end) if s.start < end] if oldest < end else []
        concerned = [t for t in members if t.written < end and engine.batches.has_changes(t.id, _for(t, segments))]
        if engine.destination.whole_batches:
            if concerned and not self._write_whole(concerned, end, segments):
                return False
        else:
            list(self._writers.map(self._guarded(end, segments), concerned))
            # A fenced write fails no table, so this must not be taken for a batch that was written.
            self._engine.fence.check()
        reach("apply.after_write")
        for table in members:
            if table.state.state in _STREAMING:
                table.written = max(table.written, end)
        self._listen(end)
        self.position = end
        self._after(members, bool(concerned))
        return True

    def _listen(self, end: Lsn) -> None:
        """Whatever the members are, none perhaps: what is told of other tables is for the one who looks for them."""
        if end <= self.position:
            return
        told = [s for s in self._engine.batches.segments(self.position, end) if s.start < end]
        if self._engine.batches.tells_of_others(told, self._engine.tables.knows):
            self._discovery.nudge()

    def _guarded(self, end: Lsn, segments: list[Segment]) -> Callable[[Table], None]:
        def write(table: Table) -> None:
            reach("apply.before_write", table.name)
            try:
                self._engine.write([self._engine.read(table, end, segments)], end, segments)
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not take other tables along
                self._failed(table, error)

        return write

    def _write_whole(self, concerned: list[Table], end: Lsn, segments: list[Segment]) -> bool:
        """All tables in one call. A failure that no table is to blame for: it is tried again, then all stops."""
        engine = self._engine
        read = [part for table in concerned if (part := self._read(table, end, segments)) is not None]
        reach("apply.before_write")
        try:
            engine.write(read, end, segments)
        except HeadraceError as error:
            blamed = self._blamed(error, concerned, segments)
            if blamed:
                for table in blamed:
                    self._failed(table, error)
                return False
            self.problem = error
            policy = self._retries.failed(error)
            # One of several destinations fails as a whole, and starts again by itself.
            if policy is not RetryPolicy.TIMED or self._retries.due_at is None or engine.lane:
                raise
            delay = max(0.0, self._retries.due_at - time.monotonic())
            _log.warning("the batch failed; trying again", error=str(error), hint=error.hint, seconds=round(delay, 1))
            if not engine.stopping.wait(delay):
                for table in concerned:
                    self._ask_position(table)
            return False
        self._retries.succeeded()
        self.problem = None
        return True

    def _blamed(self, error: HeadraceError, concerned: list[Table], segments: list[Segment]) -> list[Table]:
        """Return the tables that a batch failed for: the one the error names, or those that need a damaged segment."""
        if isinstance(error, SpoolCorrupt):
            batches = self._engine.batches
            return [table for table in concerned if batches.is_damaged_for(table.id, _for(table, segments))]
        return [table for table in concerned if table.id == getattr(error, "table_id", None)]

    def _ask_position(self, table: Table) -> None:
        try:
            self._engine.ask_position(table)
        except SpoolGap as error:
            self._engine.tables.copy_again(table, error)

    def _read(self, table: Table, end: Lsn, segments: list[Segment]) -> TableRead | None:
        """The table's part; None if it cannot be read, which is this table's failure alone."""
        try:
            return self._engine.read(table, end, segments)
        except HeadraceError as error:
            self._failed(table, error)
            return None

    def _failed(self, table: Table, error: Exception) -> None:
        if self._engine.fence.is_down:
            return
        if isinstance(error, UnrepresentableKey):
            error = self._engine.with_text_key(table, error)
        if isinstance(error, TableSchemaChanged):
            self._engine.tables.copy_again(table, error)
            return
        self._engine.check_spark()
        failure = as_table_error(error)
        self._engine.metrics.table_failed(table.schema.table.name, failure.kind)
        self._engine.tables.fail(table, failure)

    def _after(self, members: list[Table], wrote: bool) -> None:
        if any(table.pending for table in members):
            self._unflushed += 1
            if self._unflushed >= _FLUSH_AFTER_BATCHES:
                self._flush()
            return
        self._commit(wrote)

    def _flush(self) -> None:
        """The barrier: what was accepted becomes durable."""
        if self._unflushed:
            self._engine.destination.flush()
            self._commit(True)

    def _commit(self, wrote: bool) -> None:
        """Everything before `position` is durable for all tables in step."""
        self._unflushed = 0
        streaming = self._engine.tables.in_state(*_STREAMING)
        members = [table for table in streaming if not table.busy]
        for table in members:
            table.pending = False
            table.position = max(table.position, table.written)
        self.durable = self.position
        self._engine.tables.acknowledge(members, self._engine.destination)
        if wrote or time.monotonic() - self._stored_at >= _PROGRESS_INTERVAL_S:
            self._store_progress(self.durable)
        reach("apply.after_progress")
        arrived = [table for table in members if table.own_progress and table.position == self.durable]
        if arrived:
            self._have_stored(self.durable)
            self._engine.tables.in_step(arrived)
        self._engine.announce(self._stored)
        reach("apply.after_confirm")

    def _store_when_idle(self) -> None:
        """Store the progress of batches that had nothing of ours, which were not stored with them.

        There may be no batch for long, while the WAL of other tables piles up behind them, and the pipeline seems to
        lag. And where the quota is used up, the receiver waits to hear of them: there is no batch before that.
        """
        overdue = time.monotonic() - self._stored_at >= _PROGRESS_INTERVAL_S
        waited_for = self._engine.reception.status.state == "paused"
        if self._stored < self.durable and (waited_for or overdue):
            self._store_progress(self.durable)
            self._engine.announce(self._stored)

    def _have_stored(self, lsn: Lsn) -> None:
        if self._told != lsn:
            self._store_progress(lsn)

    def _store_progress(self, lsn: Lsn) -> None:
        self._engine.store.update_progress(APPLY, lsn)
        self._stored = self._told = lsn
        self._stored_at = time.monotonic()


def _for(table: Table, segments: list[Segment]) -> list[Segment]:
    return [segment for segment in segments if segment.end > table.written]
