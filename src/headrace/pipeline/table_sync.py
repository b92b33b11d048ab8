"""Gives every table that is not in step the worker it needs: a copy, a catch-up, a retry.

Copies and catch-ups have threads of their own, so that a long copy keeps no table from coming back after an error.
What goes wrong in a worker is that table's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from ..config.pipeline import PipelineMode
from ..errors import (
    DestinationError,
    HeadraceError,
    KeyRangesOvertaken,
    SparkGone,
    SpoolGap,
    TableSchemaChanged,
    UnrepresentableKey,
)
from ..lsn import Lsn
from ..table_state import State
from .catching_up import CATCH_UPS, CatchUp
from .copy_sessions import CopySessions
from .copying import TableCopy
from .courtesy import Courtesy
from .engine import Engine, Stopped
from .tables import Table

__all__ = ["TableSync", "as_table_error"]

_log = structlog.get_logger("headrace.table_sync")


class TableSync:
    """Schedules workers. `schedule` is called again and again; it never waits."""

    def __init__(self, engine: Engine, applied: Callable[[], Lsn]) -> None:
        self._engine = engine
        self._applied = applied
        self._sessions = CopySessions(engine.config)
        self._copy = TableCopy(engine, self._sessions)
        self._catch_up = CatchUp(engine, applied)
        workers = engine.config.max_table_sync_workers
        labelled = partial(engine.label_thread, engine.sync_tag)
        self.courtesy = Courtesy(engine.stopping)
        self._copies = ThreadPoolExecutor(workers, "copy", labelled)
        self._catch_ups = ThreadPoolExecutor(CATCH_UPS, "catch-up", labelled)

    def schedule(self) -> None:
        """Start whatever is due."""
        self._sessions.close_idle()
        for table in self._engine.tables.all():
            if table.busy or self._engine.stopping.is_set():
                continue
            if table.resync_asked:
                self._engine.tables.start_over(table)
            work = self._due(table)
            if work is not None and self._engine.tables.take(table):
                pool = self._copies if work == self._copy.run else self._catch_ups
                self._submit(pool, table, work)

    @property
    def idle(self) -> bool:
        """Whether no table is being copied or caught up, nor waits for it."""
        return not any(table.busy for table in self._engine.tables.all())

    @property
    def budget(self) -> int:
        return self._catch_up.budget()

    def lags(self, table: Table) -> bool:
        """Whether a table that streams is too far behind to be taken into the next batch."""
        applied = self._applied()
        if table.written >= applied:
            return False
        try:
            segments = self._engine.batches.segments(table.written, applied)
        except SpoolGap:
            # The catch-up meets the same gap, and has the table copied again; the others go on.
            return True
        return sum(segment.size for segment in segments if segment.start < applied) > self.budget

    def close(self) -> None:
        """Wait for all workers; they give up at their next step, because the pipeline is stopping."""
        self._copies.shutdown(wait=True, cancel_futures=True)
        self._catch_ups.shutdown(wait=True, cancel_futures=True)
        self._sessions.close_idle(0)

    def _due(self, table: Table) -> Callable[[Table], None] | None:
        state = table.state.state
        if table.left_at is not None and not table.copied:
            return None
        if state is State.ERRORED:
            if not table.retries.due:
                return None
            self._engine.metrics.table_retried(table.schema.table.name)
            return self._catch_up.run if table.copied else self._copy.run
        if state in (State.INIT, State.DATA_SYNC):
            return self._copy.run
        if self._engine.config.mode is PipelineMode.COPY_ONLY:
            return None
        if state in (State.FINISHED_COPY, State.SYNC_WAIT, State.CATCHUP) or self.lags(table):
            return self._catch_up.run
        return None

    def _submit(self, pool: ThreadPoolExecutor, table: Table, work: Callable[[Table], None]) -> None:
        try:
            pool.submit(self._run, table, work)
        except RuntimeError:
            # The pool is closing.
            self._engine.tables.release(table)

    def _run(self, table: Table, work: Callable[[Table], None]) -> None:
        tables = self._engine.tables
        try:
            if work == self._copy.run:
                self.courtesy.give_way()
            work(table)
        except Stopped:
            _log.info("given up for now", table=table.name, state=table.state.state.value)
        except (KeyRangesOvertaken, SpoolGap, TableSchemaChanged) as error:
            tables.copy_again(table, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not take other tables along
            self._failed(table, error)
        finally:
            tables.release(table)

    def _failed(self, table: Table, error: Exception) -> None:
        if isinstance(error, UnrepresentableKey):
            error = self._engine.with_text_key(table, error)
            if isinstance(error, TableSchemaChanged):
                self._engine.tables.copy_again(table, error)
                return
        ends = self._engine.stopping.is_set() or self._engine.fence.is_down
        if ends or error is self._engine.reception.fatal:
            # Jobs are cancelled at a stop; what they raise says nothing about the table.
            _log.info("given up for now", table=table.name, error=str(error))
            return
        try:
            self._engine.check_spark()
        except SparkGone:
            # The pipeline's own watch ends it.
            return
        failure = as_table_error(error)
        self._engine.metrics.table_failed(table.schema.table.name, failure.kind)
        self._engine.tables.fail(table, failure)


def as_table_error(error: Exception) -> HeadraceError:
    """What a table is said to have failed with; a bug is logged with its trace and tried again like an outage."""
    if isinstance(error, HeadraceError):
        return error
    _log.error("unexpected failure", kind=type(error).__name__, exc_info=error)
    return DestinationError(f"unexpected {type(error).__name__}", hint="see the log for its trace, and report it")
