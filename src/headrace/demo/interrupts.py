"""Ctrl-C, without surprises: a signal is noted and acted upon between steps, never in the middle of one.

An exception raised by a signal handler can strike anywhere, also between the start of a server and the line that
remembers it. So nothing is raised here; whoever waits or works long asks.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["Interrupted", "Interrupts"]

# Ctrl-C, kill, and a terminal that was closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The user asked to stop."""


class Interrupts:
    """While the block runs, signals that ask to stop are noted. For the main thread: only it may set handlers."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._asked.set()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        """As a signal does."""
        self._asked.set()

    def check(self) -> None:
        """Raise Interrupted if the user asked to stop."""
        if self._asked.is_set():
            raise Interrupted

    def pause(self, seconds: float) -> None:
        """Wait, and raise Interrupted as soon as the user asks to stop."""
        self._asked.wait(seconds)
        self.check()

    def take(self) -> bool:
        """Whether the user asked; the question is then answered, and the next one counts anew."""
        asked = self._asked.is_set()
        self._asked.clear()
        return asked
