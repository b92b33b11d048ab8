"""How far a table's initial copy is: for a live view, and for metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..spark.part import PartReport

__all__ = ["CopyProgress", "CopyView"]


@dataclass(frozen=True, slots=True)
class CopyView:
    """A moment of a copy. `seconds_left` is None until a range is done, and without an estimate of the size."""

    ranges: int = 0
    ranges_done: int = 0
    rows: int = 0
    bytes: int = 0
    estimated_rows: int | None = None
    seconds: float = 0.0
    seconds_left: float | None = None


class CopyProgress:
    """Told by the thread that copies, read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranges = 0
        self._estimated: int | None = None
        self._finished = PartReport()
        self._finished_ranges = 0
        self._running: Callable[[], Mapping[int, PartReport]] = dict
        self._ranges_per_work = 1.0
        self._started: float | None = None
        self._ended: float | None = None

    def begin(self, ranges: int, estimated_rows: int | None, done: int = 0) -> None:
        """A copy begins, or goes on with `done` ranges of an earlier life."""
        with self._lock:
            self._ranges, self._estimated, self._finished_ranges = ranges, estimated_rows, done
            self._finished, self._running = PartReport(), dict
            self._started, self._ended = time.monotonic(), None

    def watch(self, reports: Callable[[], Mapping[int, PartReport]], ranges_per_work: float) -> None:
        """Tasks run whose reports come in one by one."""
        with self._lock:
            self._running, self._ranges_per_work = reports, ranges_per_work

    def part_done(self, report: PartReport, ranges: int) -> None:
        """The tasks that were watched are done."""
        with self._lock:
            self._finished = PartReport.total([self._finished, report])
            self._finished_ranges += ranges
            self._running = dict

    def end(self) -> None:
        with self._lock:
            self._ended = time.monotonic()

    def view(self) -> CopyView:
        with self._lock:
            if self._started is None:
                return CopyView()
            running = list(self._running().values())
            read = PartReport.total([self._finished, *running]) if running else self._finished
            done = min(self._ranges, self._finished_ranges + int(len(running) * self._ranges_per_work))
            seconds = (self._ended or time.monotonic()) - self._started
            left = None if not done or self._ended else seconds * (self._ranges - done) / done
            return CopyView(self._ranges, done, read.rows, read.bytes, self._estimated, seconds, left)
