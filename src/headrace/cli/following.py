"""Reads a replication connection of its own and shows what comes, until somebody has seen enough."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ..config.receiver import StreamConfig
from ..destinations.stdout import EventLines
from ..errors import DestinationError, SourceError
from ..events import Begin, Commit, Delete, Event, Insert, Relation, Truncate, Update
from ..lsn import Lsn
from ..replication.live import LiveEvents
from ..replication.wire import Wire

__all__ = ["Tally", "follow"]

_REPORT_S = 1.0
"""Seconds between two reports to the server, which hangs up after wal_sender_timeout, a minute by default."""

_CHANGES = (Insert, Update, Delete, Truncate)


class Tally:
    """What was shown."""

    def __init__(self) -> None:
        self.changes = 0
        self.cut_off = False
        """Whether a second signal ended it at once."""
        self._kinds: Counter[str] = Counter()
        self._tables: set[int] = set()

    def count(self, event: Event) -> None:
        self._kinds[type(event).__name__.lower()] += 1
        if isinstance(event, Truncate):
            self._tables.update(schema.table.id for schema in event.schemas)
        elif not isinstance(event, Begin | Commit | Relation):
            self._tables.add(event.schema.table.id)
        self.changes += isinstance(event, _CHANGES)

    def summary(self) -> str:
        kinds = [(self._kinds[kind], kind) for kind in ("insert", "update", "delete", "truncate") if self._kinds[kind]]
        parts = ", ".join(_counted(count, kind) for count, kind in kinds)
        changes, begun = _counted(self.changes, "change"), _counted(self._kinds["begin"], "transaction")
        tables = _counted(len(self._tables), "table")
        return f"{changes} in {begun}, of {tables}{': ' + parts if parts else ''}"


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


class _Stop:
    """The first SIGINT or SIGTERM ends it between two events; the next one at once, should the output be blocked."""

    def __init__(self) -> None:
        self.asked = False
        self.wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    @contextmanager
    def taken(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self.wake)
            os.close(self._wake_write)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        os.write(self._wake_write, b"!")


def follow(
    config: StreamConfig, live: LiveEvents, lines: EventLines, *, limit: int | None, started: Callable[[], None]
) -> Tally:
    """Show events until a signal, `limit` changes, or the end of whoever reads them. Raises SourceError."""
    tally = Tally()
    try:
        with Wire.connect(config, "tail") as wire:
            start = wire.create_temporary_slot()
            wire.start(start)
            started()
            stop = _Stop()
            with stop.taken(), _reports(wire, start) as reports:
                while not stop.asked and not _enough(tally, limit):
                    contents = reports.read(stop.wake)
                    for event in live.feed(contents):
                        if stop.asked or _enough(tally, limit):
                            break
                        lines.events([event])
                        tally.count(event)
                    lines.flush()
    except DestinationError:
        # Whoever read the pipe has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        tally.cut_off = True
    return tally


def _enough(tally: Tally, limit: int | None) -> bool:
    return limit is not None and tally.changes >= limit


class _Reports:
    """Reads, and tells the server that we are there: also while a pager holds up the output.

    libpq's connection is for one thread at a time, so both hold the lock while they use it.
    """

    def __init__(self, wire: Wire, start: Lsn) -> None:
        self._wire = wire
        self._lock = threading.Lock()
        self._received = start
        self._due = time.monotonic()
        self.ended = threading.Event()

    def read(self, wake: int) -> list[memoryview]:
        """What has arrived; empty after a while without anything, or after a byte on `wake`."""
        with self._lock:
            contents, _ = self._wire.read()
            if contents:
                # Header bytes 1 to 8: the position of WAL data, or how far a keepalive says the server has read.
                self._received = max(self._received, Lsn(int.from_bytes(contents[-1][1:9], "big")))
            self._report()
            if not contents:
                self._wire.wait(self._due - time.monotonic(), wake, reading=True)
            return contents

    def keep_alive(self) -> None:
        """Report while the reader is busy elsewhere."""
        while not self.ended.wait(_REPORT_S):
            if self._lock.acquire(blocking=False):
                # A connection that broke is the reader's to tell.
                try:
                    with contextlib.suppress(SourceError):
                        self._report()
                finally:
                    self._lock.release()

    def _report(self) -> None:
        # Nothing is asked for again: the slot ends with this connection.
        if self._wire.reply_requested or time.monotonic() >= self._due:
            self._wire.send_status(self._received, self._received)
            self._due = time.monotonic() + _REPORT_S


@contextmanager
def _reports(wire: Wire, start: Lsn) -> Iterator[_Reports]:
    reports = _Reports(wire, start)
    thread = threading.Thread(target=reports.keep_alive, name="reports", daemon=True)
    thread.start()
    try:
        yield reports
    finally:
        reports.ended.set()
        thread.join()
