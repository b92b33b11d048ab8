"""CPU seconds of this process and everything it started, by role; the Postgres server's are told apart."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

__all__ = ["CpuMeter", "megabytes"]


def _role(process: psutil.Process) -> str:
    command = " ".join(process.cmdline())
    if process.pid == os.getpid():
        return "driver"
    if "headrace.replication.child" in command:
        return "receiver"
    if "java" in process.name():
        return "jvm"
    if "postgres" in process.name():
        return "postgres"
    if "headrace.spark.daemon" in command or "pyspark" in command:
        return "workers"
    return "other"


@dataclass(slots=True)
class _Seen:
    """A process: CPU seconds of its own and of its children that ended, when first and when last looked at."""

    role: str
    parent: int
    first: tuple[float, float]
    last: tuple[float, float]
    alive: bool = True


class CpuMeter:
    """Samples, because processes end and take their times with them; also the peak resident memory of each role."""

    def __init__(self, *, interval_s: float = 0.5) -> None:
        self._interval_s = interval_s
        self._seen: dict[tuple[int, float], _Seen] = {}
        self.peak_rss: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> CpuMeter:
        self._sample(first=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def seconds(self) -> dict[str, float]:
        """By role, since the block began. What ended between two samples counts for the role of its parent."""
        spent: dict[str, float] = {}
        for (pid, _), seen in self._seen.items():
            own = seen.last[0] - seen.first[0]
            known = [child for child in self._seen.values() if child.parent == pid and not child.alive]
            reaped = seen.last[1] - seen.first[1] - sum(sum(child.last) for child in known)
            spent[seen.role] = spent.get(seen.role, 0.0) + own + max(0.0, reaped)
        return {role: round(seconds, 2) for role, seconds in sorted(spent.items())}

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._sample()

    def _sample(self, *, first: bool = False) -> None:
        rss: dict[str, int] = {}
        me = psutil.Process()
        for seen in self._seen.values():
            seen.alive = False
        for process in [me, *me.children(recursive=True)]:
            try:
                with process.oneshot():
                    key = (process.pid, process.create_time())
                    times, memory = process.cpu_times(), process.memory_info().rss
                    now = (times.user + times.system, times.children_user + times.children_system)
                    if key not in self._seen:
                        begun = now if first else (0.0, 0.0)
                        self._seen[key] = _Seen(_role(process), process.ppid(), begun, now)
            except psutil.Error:
                continue
            seen = self._seen[key]
            seen.last, seen.alive = now, True
            rss[seen.role] = max(rss.get(seen.role, 0), memory)
        for role, size in rss.items():
            self.peak_rss[role] = max(self.peak_rss.get(role, 0), size)


def megabytes(sizes: Mapping[str, int]) -> dict[str, int]:
    """By role, as in a report."""
    return {role: round(size / 1e6) for role, size in sorted(sizes.items())}


if __name__ == "__main__":
    with CpuMeter() as meter:
        time.sleep(1)
    print(meter.seconds())
