"""Returns freed memory to the operating system, in the processes that run as long as a pipeline does.

Batches are decoded, merged and written by a dozen threads. An allocator keeps what a thread frees for that thread, so a
process grows to a multiple of what it uses at any moment. Measured with sixteen threads that had used 300 MB at most,
and then nothing: mimalloc, which Arrow uses by default, kept 830 MB, and 390 MB of it when asked in every thread to
return it; malloc kept 560 MB, and 70 MB when asked once. So the processes that Headrace starts have Arrow allocate by
malloc, and ask malloc every half minute.

malloc has an arena for each thread, up to eight for each core, and an arena returns no page that has a byte in use.
Over hours every arena keeps more such pages, although no more is in use. Two arenas serve all threads.

The Python workers of Spark keep what they free on purpose (`spark.daemon`): there it is needed again a moment later.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Iterator, Mapping

__all__ = ["RELEASE_INTERVAL_S", "MemoryRelease", "arrow_by_malloc", "environment_with_malloc", "release_free_memory"]

RELEASE_INTERVAL_S = 30.0
"""Releasing takes a few milliseconds, and so does using released pages again; memory must not wait for it for long."""

_ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
_ARENAS = "MALLOC_ARENA_MAX"
_ARENA_COUNT = 2
_M_ARENA_MAX = -8  # of <malloc.h>
_MALLOC = {_ARROW_POOL: "system", _ARENAS: str(_ARENA_COUNT)}


def environment_with_malloc() -> Mapping[str, str]:
    """Return this process's environment for a child whose Arrow allocates by malloc, which has few arenas.

    What the user has set stays.
    """
    return {**_MALLOC, **os.environ}


@contextlib.contextmanager
def arrow_by_malloc() -> Iterator[None]:
    """Have Arrow allocate by malloc if it is imported for the first time within the block.

    Arrow reads the environment once, as it is imported. Processes that are started later do not inherit the setting.
    """
    _limit_arenas()
    if _ARROW_POOL in os.environ:
        yield
        return
    os.environ[_ARROW_POOL] = _MALLOC[_ARROW_POOL]
    try:
        yield
    finally:
        del os.environ[_ARROW_POOL]


def _limit_arenas() -> None:
    """Have threads share arenas from now on, unless the user has set how many there are."""
    # Another C library than glibc has no such function.
    with contextlib.suppress(OSError, AttributeError):
        if _ARENAS not in os.environ:
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENA_COUNT)


def release_free_memory() -> None:
    """Return what malloc and, where it has an allocator of its own, Arrow keep of freed memory."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    # Another C library than glibc has no such function.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class MemoryRelease:
    """Releases free memory every so often. Called by one thread, as often as that likes."""

    def __init__(self, interval_s: float = RELEASE_INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._released_at = time.monotonic()

    def release_if_due(self) -> bool:
        """Release unless the last time was less than the interval ago; return whether it did."""
        now = time.monotonic()
        if now - self._released_at < self._interval_s:
            return False
        release_free_memory()
        self._released_at = now
        return True
