"""Catch-up of one table: it applies its own changes from the spool, beside the apply loop, until it is in reach of it.

Used after a copy, after an error, and for a table that lags for any other reason. The apply loop does not wait: when
the rest is small, it takes the table into its next batch, with a range of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, takewhile

import structlog

from ..lsn import Lsn
from ..spool import Segment
from ..table_state import State
from .engine import Engine
from .failpoint import reach
from .memory import batch_budget
from .tables import Table

__all__ = ["CATCH_UPS", "CatchUp", "within"]

CATCH_UPS = 8
"""Tables that are caught up at the same time."""

_POLL_S = 1.0

_log = structlog.get_logger("headrace.catch_up")


class CatchUp:
    """Catches tables up. `applied` tells where the apply loop is."""

    def __init__(self, engine: Engine, applied: Callable[[], Lsn]) -> None:
        self._engine = engine
        self._applied = applied

    def run(self, table: Table) -> None:
        """From FinishedCopy or Errored to SyncDone; a table that only lags keeps its state."""
        tables = self._engine.tables
        if table.state.state is State.FINISHED_COPY:
            tables.move([table], State.SYNC_WAIT)
        if table.state.state is State.ERRORED:
            self._engine.ask_position(table)
        target = self._target(table)
        if table.state.state in (State.SYNC_WAIT, State.ERRORED):
            tables.move([table], State.CATCHUP, target)
        while table.position < target or not self._in_reach(table):
            # Only for what is out of the apply loop's reach: a loop with little to write would run away from the table.
            if table.position >= target:
                target = max(target, self._applied())
            self._advance(table, target)
        reach("catchup.before_sync_done", table.name)
        if table.state.state is State.CATCHUP:
            tables.move([table], State.SYNC_DONE, table.position)
        reach("catchup.after_sync_done", table.name)
        self._engine.announce()

    def _target(self, table: Table) -> Lsn:
        """At least where the copy is of one moment."""
        seen = table.handoff.until if table.handoff is not None else Lsn(0)
        return max(self._applied(), seen, table.position)

    def _in_reach(self, table: Table) -> bool:
        """Whether what is left fits into one batch of the apply loop."""
        applied = self._applied()
        segments = self._engine.batches.segments(table.written, applied)
        left = [segment.size for segment in segments if segment.start < applied]
        return sum(left) <= self.budget()

    def budget(self) -> int:
        # Those that wait for a worker count as busy too, and may be a thousand.
        workers = self._engine.config.max_table_sync_workers + CATCH_UPS
        active = min(workers, sum(table.busy for table in self._engine.tables.all()))
        streams = (active + 1) * self._engine.lanes
        return batch_budget(self._engine.config.batch, self._engine.memory.total_bytes, streams)

    def _advance(self, table: Table, target: Lsn) -> None:
        """Apply the next few segments before `target`."""
        engine = self._engine
        engine.check_stop()
        engine.memory.wait_until_resumed(_POLL_S)
        if not engine.reception.wait(lambda status: status.covered >= target, _POLL_S):
            return
        segments = [s for s in engine.batches.segments(table.written, target) if s.start < target]
        some = within(segments, self.budget())
        end = some[-1].end if some else target
        if len(some) == len(segments):
            end = max(end, target)
        reach("catchup.before_write", table.name)
        engine.write([engine.read(table, end, some)], end, some)
        if table.pending:
            engine.destination.flush()
            table.pending = False
        reach("catchup.after_write", table.name)
        engine.tables.acknowledge([table], engine.destination)
        engine.tables.advance(table, end)
        reach("catchup.after_progress", table.name)
        engine.announce()
        _log.debug("caught up", table=table.name, lsn=str(end), segments=len(some))


def within(segments: list[Segment], budget: int) -> list[Segment]:
    """The first segments whose bytes fit the budget; one at least."""
    sizes = accumulate(segment.size for segment in segments)
    fitting = sum(1 for _ in takewhile(lambda size: size <= budget, sizes))
    return segments[: max(1, fitting)]
