"""What Spark starts on each executor to fork Python workers from, in place of `pyspark.daemon`.

It does what that does, after three preparations that every task would otherwise pay for:

* pyarrow, numpy, pandas and our readers and decoders are imported once, before the fork. None of them starts a thread
  by being imported, so a forked worker is sound; Arrow makes its thread pools anew after a fork.
* Before each task a worker calls `importlib.invalidate_caches()`, and Python 3.11 answers by reading the
  directory of pyspark.zip again, a fifth of a second. Archives on a worker's path do not change: here nothing happens.
* Memory that a batch has freed stays with the worker for a while: to give it back at once, and to get it again zeroed,
  page by page, was an eighth of a copy's CPU time.

Chosen by `spark.python.daemon.module=headrace.spark.daemon`; it needs headrace installed for the executors' Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import zipimport
from collections.abc import Callable
from typing import Any

__all__ = ["main", "prepare"]

_IMPORTS = (
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.parquet",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "asyncpg",
    "headrace.initial_copy.reader",
    "headrace.pgoutput.columnar",
    "headrace.pgtypes.registry",
    "headrace.spark.jobs",
    "headrace.spool.spool",
)
# In milliseconds, by Arrow's allocator: longer than from a batch to the next, not longer than a worker is needed.
_PURGE_DELAY = {"MIMALLOC_PURGE_DELAY": "10000"}
# By glibc's, for the rest, under its numbers in malloc.h: what may lie free at the end, and from which size on a block
# is given back by itself; no larger one than this is allowed.
_M_TRIM_THRESHOLD, _TRIM_BYTES = -1, 256 << 20
_M_MMAP_THRESHOLD, _MMAP_BYTES = -3, 32 << 20
# What only some installations have.
_EXTRAS = ("headrace.destinations.lake.destination",)


def prepare() -> None:
    """Import what tasks need and make the search path cheap; nothing here may print, start a thread or open a file."""
    _keep_memory()
    for name in _IMPORTS:
        importlib.import_module(name)
    for name in _EXTRAS:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    zipimport.zipimporter.invalidate_caches = _keep_caches  # type: ignore[method-assign,assignment]
    # Spark collects garbage after each task. What was imported is none: set apart, it is neither scanned nor, by being
    # touched, copied into each worker.
    gc.collect()
    gc.freeze()


def _keep_memory() -> None:
    """Before anything is imported that allocates."""
    os.environ.update(_PURGE_DELAY)
    # Another C library than glibc has no such function.
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def _keep_caches(_importer: zipimport.zipimporter) -> None:
    return


def main() -> None:
    """Prepare, then serve Spark until it closes our standard input."""
    prepare()
    # Imported late: the module chooses its worker by sys.argv when it is imported.
    from pyspark import daemon  # noqa: PLC0415

    daemon.worker = _quiet(daemon.worker)
    daemon.manager()


def _quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker that ends without a traceback when Spark has closed its socket, as it does with idle ones at the end."""

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            os._exit(1)

    return run


if __name__ == "__main__":
    main()
