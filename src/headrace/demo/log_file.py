"""Everything that is logged goes to a file while the demo runs: by us, by the receiver, by Java and its workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..config.telemetry import LogConfig
from ..telemetry.logging import configure_logging

__all__ = ["logged_to"]

_STDERR = 2


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Standard error is the file, also for processes started meanwhile; afterwards it is what it was."""
    before = os.dup(_STDERR)
    handlers = logging.getLogger().handlers[:]
    with path.open("a", buffering=1, encoding="utf-8") as stream:
        os.dup2(stream.fileno(), _STDERR)
        configure_logging(LogConfig(), stream)
        try:
            yield
        finally:
            logging.getLogger().handlers = handlers
            os.dup2(before, _STDERR)
            os.close(before)
