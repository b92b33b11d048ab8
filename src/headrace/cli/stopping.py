"""How a command that runs for long is stopped: in order by the first signal, at once by the second.

Nothing that was confirmed or stored depends on an orderly end, so stopping at once does no damage: the next start takes
up what it finds, as after a crash. But the processes that belong to the command must not outlive it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Collection
from types import FrameType, TracebackType
from typing import Any

import psutil

from .exit_code import ExitCode

__all__ = ["StopSignals", "end_children"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AT_ONCE_S = 2.0
"""Seconds that children get to end by themselves when the user has no patience left: enough for Java to remove its
temporary files."""
_KILL_S = 5.0


class StopSignals:
    """Takes SIGINT and SIGTERM while its block runs, which must be in the main thread."""

    def __init__(
        self, restore_terminal: Callable[[], None] = lambda: None, spared: Collection[psutil.Process] = ()
    ) -> None:
        """Before a stop at once `restore_terminal` is called, which must take no lock; for `spared` see below."""
        self._spared = spared
        self._restore_terminal = restore_terminal
        self._before: dict[int, Any] = {}
        self.asked: str | None = None
        """The name of the first signal that came."""

    def __enter__(self) -> StopSignals:
        assert threading.current_thread() is threading.main_thread()
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if self.asked is None:
            self.asked = signal.Signals(number).name
            return
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        self._restore_terminal()
        # Unbuffered and without locks: the line that was interrupted may hold them.
        os.write(_STDERR, _CUT_OFF)
        # What the threads say when their processes are taken from them helps nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)
        end_children(_AT_ONCE_S, self._spared)
        _remove_temporary_files()
        os._exit(ExitCode.CUT_OFF)


_STDERR = 2
_CUT_OFF = b"stopped immediately; the next start resumes from what is durable\n"


def _remove_temporary_files() -> None:
    """Do what was left for the end of the process, unless it waits for something that a thread holds."""
    last = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    last.start()
    last.join(_AT_ONCE_S)


def end_children(patience_s: float, spared: Collection[psutil.Process] = ()) -> None:
    """End the processes that this one started, and theirs: asked first, killed when the patience is at its end.

    Those in `spared`, and what they started, are left alone: they were there before, and belong to somebody else.
    """
    alive = _children(spared)
    for process in alive:
        _signal(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(alive, patience_s)
    # One that was being started a moment ago was not in the list.
    alive = list({*alive, *_children(spared)})
    for process in alive:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(alive, _KILL_S)


def _children(spared: Collection[psutil.Process]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        if child not in spared:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child, *child.children(recursive=True)]
    return found


def _signal(process: psutil.Process, number: int) -> None:
    # It may have ended by itself.
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
