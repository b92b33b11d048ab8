"""The receiver as seen from the pipeline: a process that is started, told how far tables are, watched, and stopped."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from ..config.receiver import ReceiverConfig
from ..errors import HeadraceError, RetryPolicy, SpoolError
from ..free_memory import environment_with_malloc
from ..lsn import Lsn
from .command import Applied, Command
from .receiver import ReceiverStatus

__all__ = ["ReceiverProcess"]

STOP_TIMEOUT_S = 30.0


class ReceiverProcess:
    """A running receiver. Closing it (or the end of this process) stops it in order."""

    def __init__(self, config: ReceiverConfig) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace.replication.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment_with_malloc(),
            )
        self._connection = Connection(ours.detach())
        self._connection.send(config)
        self._sending = threading.Lock()
        self._news = threading.Condition()
        self._status = ReceiverStatus("connecting")
        self._reported_at = time.monotonic()
        self._error: HeadraceError | None = None
        self._ended = False
        self._listener = threading.Thread(target=self._listen, name="receiver-status", daemon=True)
        self._listener.start()

    def __enter__(self) -> ReceiverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> ReceiverStatus:
        return self._status

    @property
    def silent_s(self) -> float:
        """Return the seconds since the receiver process last sent a status; a healthy one does every five seconds."""
        return time.monotonic() - self._reported_at

    def apply(self, lsn: Lsn, hold: Lsn | None = None) -> None:
        """Tables have durably applied everything before `lsn`; segments from `hold` on are kept for those behind."""
        self._tell(Applied(lsn, lsn if hold is None else hold))

    def pause(self) -> None:
        """Read no more until `resume`; what is on its way to the spool still gets there. May be repeated.

        The status becomes "paused". WAL waits on the server: the slot is watched, and its loss raised, as ever.
        """
        self._tell(Command.PAUSE)

    def resume(self) -> None:
        """Read on, unless the spool itself has no room. May be repeated."""
        self._tell(Command.RESUME)

    def wait(self, until: Callable[[ReceiverStatus], bool], timeout: float) -> ReceiverStatus:
        """Wait for a status; raises what ended the receiver, or TimeoutError."""
        deadline = time.monotonic() + timeout
        with self._news:
            while not until(self._status):
                if self._ended:
                    raise self._end()
                if not self._news.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    msg = f"the receiver did not get there within {timeout:g} s; it says {self._status}"
                    raise TimeoutError(msg)
            return self._status

    def stop(self, timeout: float = STOP_TIMEOUT_S) -> None:
        """Let it publish and confirm what is complete, and end it. A receiver that does not end in time is killed."""
        if self._process.poll() is None:
            try:
                self._send(Command.STOP)
                self._process.wait(timeout)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()
        self._process.wait()
        self._listener.join()
        self._connection.close()

    def kill(self) -> None:
        """End it the hard way. Whatever it was doing, the next one goes on where the spool ends."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        self._connection.close()

    def _tell(self, command: Applied | Command) -> None:
        try:
            self._send(command)
        except OSError as error:
            raise self._end() from error

    def _send(self, command: Applied | Command) -> None:
        # Whoever watches memory and whoever applies are different threads; a message must not be torn.
        with self._sending:
            self._connection.send(command)

    def _listen(self) -> None:
        while True:
            try:
                report = self._connection.recv()
            except (EOFError, OSError):
                break
            with self._news:
                self._reported_at = time.monotonic()
                if isinstance(report, HeadraceError):
                    self._error = report
                else:
                    self._status = report
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _end(self) -> HeadraceError:
        return self._error or SpoolError(
            f"the receiver process {self._process.pid} ended",
            hint="see its log for the reason; it can be started again",
            retry=RetryPolicy.TIMED,
        )
