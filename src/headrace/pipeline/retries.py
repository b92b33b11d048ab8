"""How often, and when, a table that failed is tried again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..errors import HeadraceError, RetryPolicy

__all__ = ["Retries"]

_LONGEST_DELAY_S = 600.0


@dataclass(slots=True)
class Retries:
    """Failures in a row, with a delay that doubles. A success starts the count anew."""

    delay_s: float = 10.0
    max_attempts: int = 5
    attempts: int = 0
    due_at: float | None = None
    """On the monotonic clock; None: not by itself."""

    def failed(self, error: HeadraceError) -> RetryPolicy:
        """What happens next: timed, or manual once trying again has not helped often enough."""
        self.attempts += 1
        if error.retry is not RetryPolicy.TIMED:
            self.due_at = None
            return error.retry
        if self.attempts > self.max_attempts:
            self.due_at = None
            return RetryPolicy.MANUAL
        self.due_at = time.monotonic() + min(_LONGEST_DELAY_S, self.delay_s * 2 ** (self.attempts - 1))
        return RetryPolicy.TIMED

    def succeeded(self) -> None:
        self.attempts, self.due_at = 0, 0.0

    @property
    def due(self) -> bool:
        return self.due_at is not None and time.monotonic() >= self.due_at
