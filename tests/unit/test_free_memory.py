"""Freed memory goes back to the operating system, and Arrow allocates where that can be asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace import free_memory
from headrace.free_memory import MemoryRelease, arrow_by_malloc, environment_with_malloc

VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"

# Sixteen threads free what they have allocated; each had pieces of all sizes.
_RELEASING = """
import random, threading
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from headrace.free_memory import arrow_by_malloc, release_free_memory
with arrow_by_malloc():
    import pyarrow as pa

def resident():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("RssAnon")]
    return int(line.split()[1]) // 1024

def work(seed):
    chance = random.Random(seed)
    held = [pa.allocate_buffer(chance.randint(100, 60_000)) for _ in range(400)]
    for buffer in held:
        np.frombuffer(buffer, np.uint8)[:] = 1
    together.wait()

before, together = resident(), threading.Barrier(16)
with ThreadPoolExecutor(16) as threads:
    list(threads.map(work, range(64)))
    used = resident()
    release_free_memory()
    after = resident()
print(before, used, after)
"""


def run(code: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_what_threads_have_freed_is_returned() -> None:
    before, used, after = map(int, run(_RELEASING).split())
    assert used - before > 50
    assert after - before < (used - before) / 4


# The command up to where it would connect to the source.
_BACKEND = """
import os, sys
from headrace.cli import run
from headrace.cli.main import build_app
run.load = lambda *_: None
assert "pyarrow" not in sys.modules
build_app("run")(["run", "pipeline.yaml"], standalone_mode=False)
import pyarrow as pa
print(pa.default_memory_pool().backend_name, os.environ.get("ARROW_DEFAULT_MEMORY_POOL"))
"""


def test_a_command_has_arrow_allocate_by_malloc_and_its_children_choose_for_themselves() -> None:
    assert run(_BACKEND) == "system None"


# Threads that hold memory at the same time, each in an arena of its own if there are enough.
_ARENAS = """
import ctypes, re, threading
from headrace.free_memory import arrow_by_malloc
with arrow_by_malloc():
    pass
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
together = threading.Barrier(9)
def hold():
    libc.malloc(1000)
    together.wait()
    together.wait()
for _ in range(8):
    threading.Thread(target=hold).start()
together.wait()
out = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fflush(ctypes.c_void_p(out))
together.wait()
"""


def test_threads_of_a_command_share_arenas() -> None:
    assert run(_ARENAS).count("<heap nr=") <= 2
    assert run(_ARENAS, MALLOC_ARENA_MAX="6").count("<heap nr=") > 2


def test_what_the_user_has_set_stays() -> None:
    assert run(_BACKEND, **{VARIABLE: "jemalloc"}) == "jemalloc jemalloc"


def test_a_library_in_another_process_leaves_its_allocator_alone() -> None:
    code = "import headrace.pipeline, pyarrow as pa; print(pa.default_memory_pool().backend_name)"
    assert run(code) == run("import pyarrow as pa; print(pa.default_memory_pool().backend_name)")


def test_the_environment_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert environment_with_malloc() == {**os.environ, VARIABLE: "system", "MALLOC_ARENA_MAX": "2"}
    monkeypatch.setenv(VARIABLE, "mimalloc")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "5")
    assert environment_with_malloc() == os.environ
    with arrow_by_malloc():
        assert os.environ[VARIABLE] == "mimalloc"
    assert os.environ[VARIABLE] == "mimalloc"


def test_memory_is_released_every_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now, released = [100.0], list[float]()
    monkeypatch.setattr(free_memory.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(free_memory, "release_free_memory", lambda: released.append(now[0]))
    release = MemoryRelease(30)
    for now[0] in (100, 129, 130, 131, 159, 161, 500, 501):
        release.release_if_due()
    assert released == [130, 161, 500]


@pytest.mark.parametrize("library", ["no function", "no library"])
def test_another_c_library_has_nothing_to_ask(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Musl:
        def __getattr__(self, name: str) -> object:
            raise AttributeError(name)

    def load(_: object) -> Musl:
        if library == "no library":
            raise OSError
        return Musl()

    monkeypatch.setattr(free_memory.ctypes, "CDLL", load)
    free_memory.release_free_memory()
