"""From counts to rates: how many rows and changes a second, over the last few seconds. No clock in here."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..pipeline.status import PipelineStatus

__all__ = ["RateMeter", "Rates"]

WINDOW_S = 5.0
"""Seconds that a rate is the mean of: batches come about once a second, and a rate must not flicker between them."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second and table: rows copied, changes applied. A table that stands still is not in them."""

    rows: Mapping[str, float] = field(default_factory=dict)
    changes: Mapping[str, float] = field(default_factory=dict)

    def of(self, table: str) -> float:
        """All that happens to a table."""
        return self.rows.get(table, 0.0) + self.changes.get(table, 0.0)


_Counts = dict[str, tuple[int, int]]


class RateMeter:
    """Give it every status that is shown; it remembers those of the last seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, _Counts]] = deque()

    def observe(self, now: float, status: PipelineStatus) -> Rates:
        """The rates at `now`, in seconds of a monotonic clock."""
        counts = {name: (table.copy.rows, table.changes) for name, table in status.tables.items()}
        self._seen.append((now, counts))
        # One older than the window stays, so that the window is always full.
        while len(self._seen) > 2 and now - self._seen[1][0] >= self._window_s:
            self._seen.popleft()
        before, old = self._seen[0]
        if now <= before:
            return Rates()
        rows: dict[str, float] = {}
        changes: dict[str, float] = {}
        for name, (copied, changed) in counts.items():
            # A copy that starts over counts from zero again.
            was_copied, was_changed = old.get(name, (copied, changed))
            if copied > was_copied:
                rows[name] = (copied - was_copied) / (now - before)
            if changed > was_changed:
                changes[name] = (changed - was_changed) / (now - before)
        return Rates(rows, changes)
