"""Copies give way to the stream: they are begun more slowly while the tables in step suffer from them.

A thousand small tables that come at once are copied by the same process, from the same server, as the changes of the
busy ones are read. What a change has to wait for is known with every batch; how long is normal was seen before.
"""

from __future__ import annotations

import threading
import time

__all__ = ["Courtesy"]

_TOLERATED = 1.3
"""How much longer than normal a change may wait before copies give way."""
_TOLERATED_S = 0.01
_PATIENCE_S = 2.0
"""Seconds that a copy waits at most: whatever the stream does, tables are copied."""
_STALE_S = 1.0
"""Seconds after which a batch says nothing any more about how things are."""
_POLL_S = 0.02
_NORMAL_WEIGHT, _LATELY_WEIGHT = 0.05, 0.3


class Courtesy:
    """Told by the apply loop how long changes wait; asked by copies before they begin. Of any threads."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._normal: float | None = None
        self._lately = 0.0
        self._told_at = 0.0

    def applied(self, seconds: float, *, alone: bool) -> None:
        """A batch was applied whose oldest change had waited so long; `alone`: while nothing was copied."""
        if alone:
            before = seconds if self._normal is None else self._normal
            self._lately = self._normal = before + _NORMAL_WEIGHT * (seconds - before)
        else:
            self._lately += _LATELY_WEIGHT * (seconds - self._lately)
        self._told_at = time.monotonic()

    def give_way(self) -> None:
        """Wait while changes wait longer than they should."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._suffers() and time.monotonic() < deadline:
            if self._stopping.wait(_POLL_S):
                return

    def _suffers(self) -> bool:
        if self._normal is None or time.monotonic() - self._told_at > _STALE_S:
            return False
        return self._lately > _TOLERATED * self._normal + _TOLERATED_S
