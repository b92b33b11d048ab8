"""What Spark starts on each executor to fork Python workers from, in place of `pyspark.daemon`.

It does what that does, after two preparations that every task would otherwise pay for:

* pyarrow, numpy, pandas and our readers and decoders are imported once, before the fork. None of them starts a thread
  by being imported, so a forked worker is sound; Arrow makes its thread pools anew after a fork.
* Before each task a worker calls `importlib.invalidate_caches()`, and Python 3.10 and 3.11 answer by reading the
  directory of pyspark.zip again, a fifth of a second. Archives on a worker's path do not change: here nothing happens.

Chosen by `spark.python.daemon.module=headrace.spark.daemon`; it needs headrace installed for the executors' Python.
"""

from __future__ import annotations

import contextlib
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
# What only some installations have.
_EXTRAS = ("headrace.destinations.lake.destination",)


def prepare() -> None:
    """Import what tasks need and make the search path cheap; nothing here may print, start a thread or open a file."""
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
