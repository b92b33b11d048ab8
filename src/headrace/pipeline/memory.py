"""Watches the memory that a pipeline takes, has freed memory returned, and says when to slow down.

Counted is the resident memory of this process and of all its children: the receiver, the JVM, its Python workers. Pages
that several of them share are counted once for each, so the sum is never too low; reading may pause a little early.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import psutil
import structlog

from ..config.batch import BatchConfig, MemoryBackpressureConfig
from ..free_memory import MemoryRelease
from .memory_limit import total_memory

__all__ = ["MemoryMonitor", "MemorySample", "ProcessTree", "Sampler", "batch_budget", "must_pause"]

CHILDREN_INTERVAL_S = 1.0
"""How often children are looked for: that reads every process of the machine. Their memory is read every time."""

_log = structlog.get_logger("headrace.memory")


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory at one moment."""

    used_bytes: int
    total_bytes: int

    @property
    def ratio(self) -> float:
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0


class Sampler(Protocol):
    """Looks at the memory now. Called from the monitor's thread, many times a second."""

    def __call__(self) -> MemorySample: ...


def batch_budget(config: BatchConfig, total_bytes: int, active_streams: int) -> int:
    """Bytes of raw WAL that one batch may have while `active_streams` of them are under way."""
    share = int(total_bytes * config.memory_budget_ratio) // max(1, active_streams)
    return max(1, min(config.max_bytes, share))


def must_pause(active: bool, ratio: float, config: MemoryBackpressureConfig | None) -> bool:
    """Whether reading pauses now, given whether it did before: on at one threshold, off below another."""
    if config is None:
        return False
    return ratio >= (config.resume_threshold if active else config.activate_threshold)


class ProcessTree:
    """The sampler for real: this process and all its children."""

    def __init__(self) -> None:
        self._self = psutil.Process()
        self._tree = [self._self]
        self._looked_at: float | None = None
        self._total = total_memory()

    def __call__(self) -> MemorySample:
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at >= CHILDREN_INTERVAL_S:
            self._tree = [self._self, *self._self.children(recursive=True)]
            self._looked_at = now
        return MemorySample(sum(map(_resident, self._tree)), self._total)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        # It ended a moment ago.
        return 0


class MemoryMonitor:
    """Samples in a thread from `start` to `close`. Everything else may be called from any thread."""

    def __init__(
        self,
        config: MemoryBackpressureConfig | None,
        interval_ms: int,
        on_change: Callable[[bool], None] = lambda _: None,
        sampler: Sampler | None = None,
    ) -> None:
        """`on_change` is called from the thread with the new value of `active`; without `config` never."""
        self._config = config
        self._interval_s = interval_ms / 1000
        self._on_change = on_change
        self._sampler = sampler or ProcessTree()
        self._sample = self._sampler()
        self._release = MemoryRelease()
        self._resumed = threading.Event()
        self._resumed.set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    @property
    def active(self) -> bool:
        """Whether reading should pause."""
        return not self._resumed.is_set()

    @property
    def used_ratio(self) -> float:
        return self._sample.ratio

    @property
    def total_bytes(self) -> int:
        return self._sample.total_bytes

    def wait_until_resumed(self, timeout: float | None = None) -> bool:
        """Return at once unless `active`; else when there is memory again, or False after `timeout` seconds."""
        return self._resumed.wait(timeout)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread, and let go whoever waits."""
        self._closing.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._resumed.set()

    def __enter__(self) -> MemoryMonitor:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check(self) -> None:
        """Look once, and tell when something changed. The thread does this; tests may."""
        try:
            self._sample = self._sampler()
        except (psutil.Error, OSError) as error:
            _log.warning("memory cannot be measured; the last measurement holds", error=str(error))
            return
        before, now = self.active, must_pause(self.active, self._sample.ratio, self._config)
        if now == before:
            return
        # Cleared before the news, set after it: whoever is let go finds everything resumed.
        if now:
            self._resumed.clear()
        measured = {"used_ratio": round(self._sample.ratio, 3), "total_bytes": self._sample.total_bytes}
        if now:
            _log.warning("memory is short; reading pauses", **measured)
        else:
            _log.info("memory is free again; reading goes on", **measured)
        self._on_change(now)
        if not now:
            self._resumed.set()

    def _run(self) -> None:
        try:
            while not self._closing.wait(self._interval_s):
                self._release.release_if_due()
                self.check()
        finally:
            # Without this thread nobody would ever resume.
            self._resumed.set()
