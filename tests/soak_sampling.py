"""What a running pipeline takes of the machine, looked at from outside: by /proc, by the JVM's own diagnostics."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from awaiting import until

__all__ = ["ROLES", "Samples", "live_heap_bytes", "live_heap_histogram", "role_of", "sampled"]

ROLES = ("driver", "receiver", "jvm", "workers")
_MEGABYTE = 1e6
_HISTOGRAM_LINES = 200
_HISTOGRAM_TOTAL = re.compile(rb"^Total\s+\d+\s+(\d+)", re.MULTILINE)

Sample = dict[str, Any]


def role_of(process: psutil.Process, driver: int) -> str:
    if process.pid == driver:
        return "driver"
    command = " ".join(process.cmdline())
    if "headrace.replication.child" in command:
        return "receiver"
    if process.name().startswith("java"):
        return "jvm"
    return "workers" if "headrace.spark.daemon" in command else "other"


def process_sample(pid: int) -> dict[str, float]:
    """Resident memory in MB (`anon` without mapped files), descriptors and threads of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    memory = {name: int(status[field].split()[0]) * 1024 / _MEGABYTE for name, field in _MEMORY_FIELDS.items()}
    return {**memory, "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(status["Threads"])}


_MEMORY_FIELDS = {"rss_mb": "VmRSS", "anon_mb": "RssAnon"}


def tree_sample(driver: int) -> dict[str, dict[str, float]]:
    """By role, what all processes of it take together, how many they are, and their CPU seconds so far."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    top = psutil.Process(driver)
    for process in [top, *top.children(recursive=True)]:
        # It may end while it is looked at.
        with contextlib.suppress(psutil.Error, OSError, KeyError):
            role, cpu = role_of(process, driver), process.cpu_times()
            sample = process_sample(process.pid)
            for name, value in {**sample, "processes": 1, "cpu_s": cpu.user + cpu.system}.items():
                found[role][name] += value
    return {role: dict(values) for role, values in found.items()}


def live_heap_histogram(java: int) -> bytes:
    """Return the histogram of the objects that are alive in a JVM, which collects all garbage first.

    Asked for by the attach protocol that `jcmd` speaks: a runtime environment without `jcmd` answers it as well.
    """
    with _attached(java) as connection:
        connection.sendall(b"1\0jcmd\0GC.class_histogram\0\0\0")
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def live_heap_bytes(histogram: bytes) -> int:
    """Return the bytes that all objects of a histogram take together."""
    total = _HISTOGRAM_TOTAL.search(histogram)
    assert total is not None, f"the JVM answered {histogram[:200]!r}"
    return int(total.group(1))


@contextlib.contextmanager
def _attached(java: int) -> Iterator[socket.socket]:
    listening = Path(f"/tmp/.java_pid{java}")
    if not listening.exists():
        # The JVM starts to listen when it is sent SIGQUIT and finds this file.
        asked = Path(f"/proc/{java}/cwd/.attach_pid{java}")
        asked.touch()
        try:
            os.kill(java, signal.SIGQUIT)
            until(listening.exists, 30)
        finally:
            asked.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(listening))
        yield connection


class Samples:
    """All samples of a run, in memory and, one JSON object per line, in a file."""

    def __init__(self, file: Path) -> None:
        self._file, self._began = file, time.monotonic()
        self.taken: list[Sample] = []
        self.error: BaseException | None = None
        """What ended the sampling."""

    def add(self, **values: Any) -> None:
        sample = {"at": round(time.monotonic() - self._began, 2), **values}
        self.taken.append(sample)
        with self._file.open("a") as file:
            print(json.dumps(sample), file=file)

    def series(self, *path: str) -> list[tuple[float, float]]:
        """A quantity, by the names that lead to it, over time; samples without it are left out."""
        found = ((sample["at"], _get(sample, path)) for sample in list(self.taken))
        return [(at, value) for at, value in found if value is not None]


def _get(sample: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = sample
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


@contextlib.contextmanager
def sampled(
    driver: int, file: Path, storage: Callable[[], dict[str, float]], interval_s: float, rare_s: float
) -> Iterator[Samples]:
    """Sample the processes under `driver` until the block ends; every `rare_s` the JVM's heap and `storage` as well.

    The histograms of the heap are left beside `file`, so that growth can be traced to a class.
    """
    samples, stop = Samples(file), threading.Event()

    def run() -> None:
        rare = time.monotonic()
        try:
            while not stop.wait(interval_s):
                samples.add(processes=tree_sample(driver))
                if time.monotonic() >= rare + rare_s:
                    rare = time.monotonic()
                    histogram = live_heap_histogram(_java_of(driver))
                    samples.add(heap_mb=live_heap_bytes(histogram) / _MEGABYTE, storage=storage())
                    head = b"\n".join(histogram.splitlines()[:_HISTOGRAM_LINES])
                    file.with_name(f"heap-{len(samples.taken):05}.txt").write_bytes(head)
        except BaseException as error:
            samples.error = error
            raise

    thread = threading.Thread(target=run, name="sampling", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join(120)
    assert samples.error is None, f"the sampling failed: {samples.error!r}"


def _java_of(driver: int) -> int:
    for process in psutil.Process(driver).children(recursive=True):
        # Others may end while they are looked at.
        with contextlib.suppress(psutil.Error):
            if role_of(process, driver) == "jvm":
                return process.pid
    msg = "the pipeline has no JVM"
    raise AssertionError(msg)
