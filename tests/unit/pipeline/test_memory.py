"""pipeline.memory and pipeline.memory_limit: the decision, the budget, the thread, and where the limit comes from."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from headrace.config.batch import BatchConfig, MemoryBackpressureConfig
from headrace.pipeline import memory
from headrace.pipeline.memory import MemoryMonitor, MemorySample, ProcessTree, batch_budget, must_pause
from headrace.pipeline.memory_limit import control_group_limit, total_memory

CONFIG = MemoryBackpressureConfig(activate_threshold=0.8, resume_threshold=0.6)
MIB = 1 << 20


class Scripted:
    """Percentages of a memory of 100 bytes, one per sample; the last one stays."""

    def __init__(self, *used: int) -> None:
        self._used = list(used)

    def __call__(self) -> MemorySample:
        return MemorySample(self._used.pop(0) if len(self._used) > 1 else self._used[0], 100)


@pytest.mark.parametrize(
    ("active", "ratio", "pauses"),
    [
        (False, 0.79, False),
        (False, 0.8, True),
        (True, 0.79, True),
        (True, 0.6, True),
        (True, 0.59, False),
        (False, 0.7, False),
    ],
)
def test_on_at_one_threshold_and_off_below_another(active: bool, ratio: float, pauses: bool) -> None:
    assert must_pause(active, ratio, CONFIG) is pauses


def test_without_thresholds_nothing_pauses() -> None:
    assert not must_pause(False, 2.0, None)
    assert not must_pause(True, 2.0, None)


@pytest.mark.parametrize(
    ("total", "streams", "budget"),
    [
        (1000 * MIB, 1, 64 * MIB),
        (1000 * MIB, 5, 40 * MIB),
        (100 * MIB, 1, 20 * MIB),
        (100 * MIB, 0, 20 * MIB),
        (1, 50, 1),
    ],
)
def test_a_batch_gets_its_share_of_the_memory(total: int, streams: int, budget: int) -> None:
    assert batch_budget(BatchConfig(), total, streams) == budget


def test_changes_are_told_once_each() -> None:
    told: list[bool] = []
    monitor = MemoryMonitor(CONFIG, 100, told.append, Scripted(10, 85, 90, 70, 50, 70, 80))
    active = []
    for _ in range(6):
        monitor.check()
        active.append(monitor.active)
    assert active == [True, True, True, False, False, True]
    assert told == [True, False, True]
    assert (monitor.used_ratio, monitor.total_bytes) == (0.8, 100)


def test_whoever_waits_is_let_go_when_memory_is_free_again() -> None:
    monitor = MemoryMonitor(CONFIG, 100, sampler=Scripted(0, 90, 10))
    assert monitor.wait_until_resumed(0)
    monitor.check()
    assert not monitor.wait_until_resumed(0)
    waiter = threading.Thread(target=monitor.wait_until_resumed, daemon=True)
    waiter.start()
    monitor.check()
    waiter.join(30)
    assert not waiter.is_alive()


def test_the_thread_samples_and_closing_lets_waiters_go() -> None:
    paused = threading.Event()
    with MemoryMonitor(CONFIG, 1, lambda _: paused.set(), Scripted(0, 90)) as monitor:
        assert paused.wait(30)
        assert monitor.active
    assert monitor.wait_until_resumed(0)
    assert "memory" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_holds_nobody_back() -> None:
    def fail(_: bool) -> None:
        msg = "a bug"
        raise RuntimeError(msg)

    with MemoryMonitor(CONFIG, 1, fail, Scripted(0, 90)) as monitor:
        monitor._thread.join(30)
        assert monitor.wait_until_resumed(0)


def test_a_measurement_that_fails_changes_nothing() -> None:
    def failing() -> MemorySample:
        if broken:
            raise psutil.AccessDenied
        return MemorySample(90, 100)

    broken = False
    monitor = MemoryMonitor(CONFIG, 100, sampler=failing)
    monitor.check()
    broken = True
    monitor.check()
    assert monitor.active
    assert monitor.used_ratio == 0.9


def test_children_count_and_those_that_ended_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CHILDREN_INTERVAL_S", 0.0)
    script = "x = bytearray(200 << 20); print('ready', flush=True); input()"
    sample = ProcessTree()
    # Others of this run may have children already: a JVM, servers.
    alone = sample().used_bytes
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert sample().used_bytes > alone + 150 * MIB
        # When it ends between the look for children and the look at their memory
        monkeypatch.setattr(memory, "CHILDREN_INTERVAL_S", 3600.0)
        child.communicate("\n", timeout=30)
    assert 0 < sample().used_bytes < alone + 150 * MIB


def test_there_is_no_more_memory_than_the_machine_has() -> None:
    assert 0 < total_memory() <= psutil.virtual_memory().total
    assert ProcessTree()().total_bytes == total_memory()


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "500\n", "memory.max": "900\n"}, 500),
        ("0::/on/the/host\n", {"memory.max": "700\n"}, 700),
        ("0::/a\n", {"a/memory.max": "max\n"}, None),
        ("4:memory:/a\n1:cpu:/b\n0::/\n", {"memory/a/memory.limit_in_bytes": "300\n"}, 300),
        ("4:cpu,memory:/a\n", {"memory/memory.limit_in_bytes": "400\n"}, 400),
        ("1:cpu:/a\n", {"a/memory.max": "1\n", "memory/a/memory.limit_in_bytes": "1\n"}, None),
        ("0::/../..\n", {}, None),
    ],
)
def test_the_limit_of_a_control_group(
    tmp_path: Path, membership: str, files: dict[str, str], limit: int | None
) -> None:
    mount = tmp_path / "sys"
    write(tmp_path / "cgroup", membership)
    for name, text in files.items():
        write(mount / name, text)
    assert control_group_limit(tmp_path / "cgroup", mount) == limit


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert control_group_limit(tmp_path / "missing", tmp_path) is None
