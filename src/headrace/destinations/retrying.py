"""A few quick tries in place, for what passes by itself in moments: a conflict, a dropped connection, a timeout.

What lasts longer is the pipeline's: it takes the table out and lets the others go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ..errors import DestinationConflict, DestinationConnectionFailed, DestinationTimeout, RetryPolicy
from ..schema import TableName
from .around import Around
from .contract import Destination

__all__ = ["DEFAULT_ATTEMPTS", "DEFAULT_DELAY_S", "MAX_DELAY_S", "Retrying"]

_Result = TypeVar("_Result")

DEFAULT_ATTEMPTS = 3
DEFAULT_DELAY_S = 0.2
"""Before the second try; it doubles from try to try."""
MAX_DELAY_S = 5.0
"""Longer waits belong to the pipeline, which keeps its other tables going meanwhile."""

_PASSING = (DestinationConflict, DestinationConnectionFailed, DestinationTimeout)
# A copy whose answer got lost may have been written: only with the table dropped first may it come again. And nobody
# waits for a destination to close.
_ONCE = frozenset({"write_table_rows", "shutdown"})


class Retrying(Around):
    """Wraps a destination. `stopping` ends the waiting: the last error is raised at once."""

    def __init__(
        self,
        destination: Destination,
        attempts: int = DEFAULT_ATTEMPTS,
        delay_s: float = DEFAULT_DELAY_S,
        stopping: threading.Event | None = None,
    ) -> None:
        if attempts < 1:
            msg = f"attempts must be at least 1, not {attempts}"
            raise ValueError(msg)
        super().__init__(destination, self._retried)
        self._attempts = attempts
        self._delay_s = delay_s
        self._stopping = stopping or threading.Event()

    def _retried(self, method: str, table: TableName | None, call: Callable[[], _Result]) -> _Result:
        del table
        delay_s = self._delay_s
        for _ in range(1 if method in _ONCE else self._attempts, 1, -1):
            try:
                return call()
            except _PASSING as error:
                if error.retry is not RetryPolicy.TIMED or self._stopping.wait(min(delay_s, MAX_DELAY_S)):
                    raise
                delay_s *= 2
        return call()
