"""Waits for what comes about by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0


def until(condition: Callable[[], object], timeout: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.02)
