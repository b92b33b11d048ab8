"""The receiver as the pipeline sees it: started again when it dies, until an error says that this does not help."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import structlog

from ..config.receiver import ReceiverConfig
from ..errors import HeadraceError, RetryPolicy
from ..lsn import INVALID_LSN, Lsn
from ..replication import ReceiverProcess, ReceiverStatus

__all__ = ["Reception"]

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
_HEALTHY_S = 60.0
"""A receiver that lived so long starts the delays anew."""

_log = structlog.get_logger("headrace.reception")


class Reception:
    """One receiver after the other. Methods may be called from any thread."""

    def __init__(self, config: ReceiverConfig, stopping: threading.Event) -> None:
        self._config = config
        self._stopping = stopping
        self._lock = threading.Lock()
        self._process: ReceiverProcess | None = None
        self._started_at = 0.0
        self._delay = _FIRST_DELAY_S
        self._applied = self._hold = INVALID_LSN
        self._paused = False
        self.restarts = 0
        self.fatal: HeadraceError | None = None
        """What ended the receiver for good."""

    def start(self) -> None:
        with self._lock:
            self._start()

    @property
    def status(self) -> ReceiverStatus:
        process = self._process
        return ReceiverStatus("connecting") if process is None else process.status

    @property
    def silent_s(self) -> float:
        """Seconds since the receiver's last report; 0 where there is no receiver."""
        process = self._process
        return 0.0 if process is None else process.silent_s

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def wait(self, until: Callable[[ReceiverStatus], bool], timeout: float) -> bool:
        """Whether the status came within the time. Raises what ended the receiver, if starting again cannot help."""
        deadline = time.monotonic() + timeout
        while not self._stopping.is_set():
            process = self._process
            if self.fatal is not None:
                raise self.fatal
            if process is None:
                return False
            # In short turns, so that a stop is noticed.
            try:
                process.wait(until, max(0.0, min(0.2, deadline - time.monotonic())))
            except TimeoutError:
                if time.monotonic() >= deadline:
                    return False
            except HeadraceError as error:
                self._replace(process, error)
            else:
                return True
        return False

    def apply(self, applied: Lsn, hold: Lsn) -> None:
        """Tables have applied everything before `applied`; segments from `hold` on are still read by someone."""
        self._applied, self._hold = max(applied, self._applied), hold
        self._tell(lambda process: process.apply(self._applied, self._hold))

    def pause(self, paused: bool) -> None:
        """Stop reading for want of memory, or go on."""
        self._paused = paused
        self._tell(lambda process: process.pause() if paused else process.resume())

    def stop(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.stop()

    def _tell(self, command: Callable[[ReceiverProcess], None]) -> None:
        process = self._process
        if process is not None:
            # A receiver that died is found, and told again, by whoever waits for it.
            with contextlib.suppress(HeadraceError):
                command(process)

    def _start(self) -> None:
        self._process = process = ReceiverProcess(self._config)
        self._started_at = time.monotonic()
        if self._applied:
            process.apply(self._applied, self._hold)
        if self._paused:
            process.pause()

    def _replace(self, dead: ReceiverProcess, error: HeadraceError) -> None:
        with self._lock:
            if self._process is not dead:
                return
            dead.stop()
            if error.retry is not RetryPolicy.TIMED:
                self._process, self.fatal = None, error
                raise error
            if time.monotonic() - self._started_at > _HEALTHY_S:
                self._delay = _FIRST_DELAY_S
            _log.warning(
                "the receiver ended; starting it again", error=str(error), kind=error.kind, seconds=self._delay
            )
            if not self._stopping.wait(self._delay):
                self._delay = min(self._delay * 2, _LONGEST_DELAY_S)
                self.restarts += 1
                self._start()
