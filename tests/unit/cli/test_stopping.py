"""Signals: the first is noted, the second ends the process and what it started, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil

from headrace.cli.stopping import StopSignals, end_children

_SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
_DEAF = [
    sys.executable, "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)",
]  # fmt: skip

_COMMAND = f"""
import atexit, os, signal, subprocess, sys
import psutil
from headrace.cli.stopping import StopSignals
before = subprocess.Popen({_SLEEP!r}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
after = subprocess.Popen({_SLEEP!r})
atexit.register(print, "tidied", flush=True)
with StopSignals(lambda: print("restored", flush=True), [psutil.Process(before.pid)]) as signals:
    os.kill(os.getpid(), signal.SIGTERM)
    print(signals.asked, before.pid, after.pid, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_the_second_signal_ends_the_process_and_its_children_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _COMMAND], capture_output=True, text=True, check=False, timeout=60)
    first, *rest = done.stdout.splitlines()
    asked, before, after = first.split()
    before_process = psutil.Process(int(before))
    before_process.kill()
    assert done.returncode == 130
    assert asked == "SIGTERM"
    assert rest == ["restored", "tidied"]
    assert done.stderr.startswith("stopped immediately")
    assert not psutil.pid_exists(int(after))


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.asked == "SIGINT"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_children_of_before_are_spared_and_deaf_ones_killed() -> None:
    older = subprocess.Popen(_SLEEP)
    before = psutil.Process().children()
    deaf = subprocess.Popen(_DEAF, stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    deaf.stdout.readline()
    end_children(0.1, before)
    deaf.stdout.close()
    deaf.wait()
    assert older.poll() is None
    assert not psutil.pid_exists(deaf.pid)
    older.kill()
    older.wait()
