"""The thread between the socket and the spool: it may wait for the disk, so that the socket's thread never does.

It takes chunks from a bounded backlog, lets the assembler make whole transactions of them, publishes segments when they
are large or old enough, and removes those that every table has applied.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import structlog

from ..config.spool import SpoolConfig
from ..errors import HeadraceError, SpoolIoError
from ..free_memory import MemoryRelease
from ..lsn import INVALID_LSN, Lsn
from ..spool import Spool, SpoolPosition
from .assembler import Assembler
from .chunk import Contents
from .feedback import Positions
from .segments import SegmentWriter

__all__ = ["Spooling"]

IDLE_MARK_INTERVAL_S = 2.0
"""How often an idle position is recorded: seconds of WAL kept too long against a file written for nothing."""

RELEASE_INTERVAL_S = 1.0
RETRY_DELAY_S = 1.0

_log = structlog.get_logger("headrace.spooling")


class _Abandoned(Exception):
    """Asked to stop while the disk refuses. Nothing is lost: what was not published was never confirmed."""


class _Reset:
    def __init__(self) -> None:
        self.done = threading.Event()


_FINISH = object()


class Spooling:
    """Runs in its own thread from `start` to `finish`. Every method may be called from any other thread."""

    def __init__(
        self,
        spool: Spool,
        config: SpoolConfig,
        position: SpoolPosition,
        backlog_bytes: int,
        changed: Callable[[], None],
    ) -> None:
        self._spool = spool
        self._config = config
        self._backlog_bytes = backlog_bytes
        self._changed = changed
        self._writer = SegmentWriter(spool, position, config.segment_bytes, self._persist)
        self._assembler = Assembler(spool, self._writer, self._persist)
        self._items: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._backlog = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._unapplied = deque((segment.end, segment.size) for segment in spool.segments())
        self._unapplied_bytes = sum(size for _, size in self._unapplied)
        self._announced: tuple[Lsn, bool] | None = None
        self._held_since: float | None = None
        self._marked_at = self._released_at = time.monotonic()
        self._memory = MemoryRelease()
        self._released = INVALID_LSN
        self._kept = False
        self.applied = self._hold = INVALID_LSN
        self.problem: HeadraceError | None = None
        """What the disk refuses at the moment, or why the thread has ended."""
        self.failure: BaseException | None = None
        """A bug: the thread died of something that is no error of ours."""
        self._thread = threading.Thread(target=self._run, name="spooling", daemon=True)

    # -- for the receiver ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def full(self) -> bool:
        """No more may be put for now: the disk is behind, or the quota of unapplied segments is used up."""
        return self._backlog >= self._backlog_bytes or self._unapplied_bytes >= self._config.quota_bytes

    @property
    def unapplied_bytes(self) -> int:
        return self._unapplied_bytes

    @property
    def positions(self) -> Positions:
        return Positions(self._writer.spooled, self._writer.covered, self.applied)

    def put(self, contents: Contents, size: int) -> None:
        with self._lock:
            self._backlog += size
        self._items.put((contents, size))

    def reset(self, cancelled: threading.Event) -> Lsn:
        """Forget what is not complete, after everything put so far; return where a new connection takes over."""
        mark = _Reset()
        self._items.put(mark)
        while not mark.done.wait(0.1):
            if not self.alive or cancelled.is_set():
                break
        return self._writer.end

    def apply(self, lsn: Lsn, hold: Lsn) -> None:
        """Everything before `lsn` is applied; a table that is behind may still hold segments."""
        self.applied, self._hold = max(self.applied, lsn), hold

    def finish(self, timeout: float) -> None:
        """Publish what is whole and end the thread. A disk that refuses is waited for no longer than `timeout`."""
        self._items.put(_FINISH)
        self._thread.join(timeout)
        self._stopping.set()
        self._thread.join(timeout)

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._take():
                self._publish_if_due()
                self._mark_if_idle()
                self._release_if_due()
                self._announce()
                self._memory.release_if_due()
            self._assembler.reset()
            self._writer.publish()
        except _Abandoned:
            _log.warning("stopped before everything received was written", problem=str(self.problem))
        except HeadraceError as error:
            self.problem = error
            _log.error("spooling failed", error=str(error), kind=error.kind)
        except BaseException as error:
            self.failure = error
            raise
        self._changed()

    def _announce(self) -> None:
        """Wake the socket's thread for what it waits for: a new position, or room after there was none."""
        news = (self._writer.covered, self.full)
        if news != self._announced:
            self._announced = news
            self._changed()

    def _take(self) -> bool:
        try:
            item = self._items.get(timeout=self._patience())
        except queue.Empty:
            return True
        if item is _FINISH:
            return False
        if isinstance(item, _Reset):
            self._assembler.reset()
            item.done.set()
            return True
        assert isinstance(item, tuple)
        contents, size = item
        self._assembler.feed(contents)
        with self._lock:
            self._backlog -= size
        return True

    def _patience(self) -> float:
        if self._held_since is None:
            return RELEASE_INTERVAL_S / 2
        return max(0.0, self._held_since + self._config.segment_age_ms / 1000 - time.monotonic())

    def _publish_if_due(self) -> None:
        if not self._writer.publishable:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = time.monotonic()
        elif self._patience() == 0.0:
            self._writer.publish()
            self._held_since = None
        self._unapplied.extend(self._writer.published)
        self._unapplied_bytes += sum(size for _, size in self._writer.published)
        self._writer.published.clear()

    def _mark_if_idle(self) -> None:
        now = time.monotonic()
        if self._writer.idle and now - self._marked_at >= IDLE_MARK_INTERVAL_S:
            self._writer.cover(self._assembler.server_position)
            self._marked_at = now

    def _release_if_due(self) -> None:
        while self._unapplied and self._unapplied[0][0] <= self.applied:
            self._unapplied_bytes -= self._unapplied.popleft()[1]
        now = time.monotonic()
        if now - self._released_at < RELEASE_INTERVAL_S:
            return
        self._released_at = now
        free = min(self.applied, self._hold)
        if free > self._released or self._kept:
            self._persist(partial(self._release, free))

    def _release(self, free: Lsn) -> None:
        self._spool.release(free, self._config.keep_seconds)
        self._released = free
        # With an age to wait for, what was applied leaves later: a look is due until it has.
        self._kept = bool(self._config.keep_seconds) and self._spool.oldest_end() <= free

    def _persist(self, action: Callable[[], object]) -> None:
        """Repeat until the disk takes it: what is in memory is all there is, and the server keeps the rest."""
        while True:
            try:
                action()
            except SpoolIoError as error:
                if self.problem is None:
                    _log.warning("the spool cannot be written; reading pauses", error=str(error), hint=error.hint)
                self.problem = error
                self._changed()
                if self._stopping.wait(RETRY_DELAY_S):
                    raise _Abandoned from error
            else:
                if self.problem is not None:
                    _log.info("the spool can be written again")
                    self.problem = None
                return
