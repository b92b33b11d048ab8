"""What stands for the live view where there is no terminal: a line in the log now and then."""

from __future__ import annotations

from collections import Counter

import structlog

from ..pipeline.status import PipelineStatus
from ..table_state import State
from .rates import Rates

__all__ = ["Summary"]

COPYING_INTERVAL_S = 10.0
STREAMING_INTERVAL_S = 60.0

_log = structlog.get_logger("headrace.progress")


class Summary:
    """Logs at most every ten seconds while tables are copied or change state, every minute while changes come in."""

    def __init__(self) -> None:
        self._logged_at: float | None = None
        self._states: Counter[State] = Counter()
        self._changes = 0

    def observe(self, now: float, status: PipelineStatus, rates: Rates) -> None:
        """Look at a status, at a time in seconds of a monotonic clock; log if it is due and says something new."""
        states = Counter(table.state.state for table in status.tables.values())
        if not states:
            return
        if self._logged_at is None:
            # The pipeline itself says how it starts.
            self._logged_at = now
        changes = sum(table.changes for table in status.tables.values())
        moving = states != self._states or states[State.DATA_SYNC] > 0
        due = self._logged_at + (COPYING_INTERVAL_S if moving else STREAMING_INTERVAL_S)
        if now < due or not (moving or changes != self._changes):
            return
        self._logged_at, self._states, self._changes = now, states, changes
        self._log(status, rates, changes)

    def _log(self, status: PipelineStatus, rates: Rates, changes: int) -> None:
        tables = status.tables.values()
        _log.info(
            "progress",
            tables={state.value: count for state, count in self._states.items()},
            copied_rows=sum(table.copy.rows for table in tables),
            copied_rows_per_s=round(sum(rates.rows.values())),
            changes=changes,
            changes_per_s=round(sum(rates.changes.values()), 1),
            lsn=str(status.applied),
            lag_bytes=status.lag_bytes,
            lag_seconds=None if status.lag_seconds is None else round(status.lag_seconds, 1),
        )
