"""How often, and when, a table that failed is tried again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..config.pipeline import PipelineConfig, PipelineMode
from ..errors import HeadraceError, RetryPolicy

__all__ = ["Retries", "table_retries"]

_LONGEST_DELAY_S = 120.0
_LAST_DOUBLING = 30
_COPY_ONLY_ATTEMPTS = 5
"""Of a command that somebody waits for."""


@dataclass(slots=True)
class Retries:
    """Failures in a row, with a delay that doubles. A success starts the count anew."""

    delay_s: float = 10.0
    max_attempts: int | None = None
    """Retries before the error becomes manual; None: no limit."""
    attempts: int = 0
    due_at: float | None = None
    """On the monotonic clock; None: not by itself."""

    def failed(self, error: HeadraceError) -> RetryPolicy:
        """What happens next: timed, or manual once trying again has not helped as often as is allowed."""
        self.attempts += 1
        if error.retry is not RetryPolicy.TIMED:
            self.due_at = None
            return error.retry
        if self.max_attempts is not None and self.attempts > self.max_attempts:
            self.due_at = None
            return RetryPolicy.MANUAL
        self.due_at = time.monotonic() + min(
            _LONGEST_DELAY_S, self.delay_s * 2 ** min(self.attempts - 1, _LAST_DOUBLING)
        )
        return RetryPolicy.TIMED

    def succeeded(self) -> None:
        self.attempts, self.due_at = 0, 0.0

    @property
    def due(self) -> bool:
        return self.due_at is not None and time.monotonic() >= self.due_at


def table_retries(config: PipelineConfig) -> Retries:
    """Return the retry rule of a pipeline's tables, with no failure counted yet."""
    attempts = config.table_error_retry_max_attempts
    if attempts is None and config.mode is PipelineMode.COPY_ONLY:
        attempts = _COPY_ONLY_ATTEMPTS
    return Retries(config.table_error_retry_delay_ms / 1000, attempts)
