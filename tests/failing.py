"""Which calls of a FaultyDestination fail: begun and ended by a test while the pipeline runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

Error = Callable[[], Exception]


class Failures:
    """Given to a FaultyDestination. Counts what it made fail, by method and table."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, str | None], Error] = {}
        self._times: dict[tuple[str, str | None], int | None] = {}
        self._lock = threading.Lock()
        self.count: Counter[tuple[str, str | None]] = Counter()

    def __call__(self, method: str, table: str | None) -> None:
        call = method, table
        with self._lock:
            error, times = self._errors.get(call), self._times.get(call)
            if error is None or (times is not None and self.count[call] >= times):
                return
            self.count[call] += 1
        raise error()

    def begin(self, method: str, table: str | None, error: Error, *, times: int | None = None) -> None:
        """Let calls fail from now on, so many of them or all."""
        with self._lock:
            self._errors[method, table], self._times[method, table] = error, times

    def end(self, method: str, table: str | None) -> None:
        with self._lock:
            del self._errors[method, table]
