"""A driver whose JVM is killed around a commit: `python killed_jvm.py WAREHOUSE before|lost|reading OPERATION`.

The driver goes on, as it would in a pipeline, until its error has been handled.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commit_faults import MAINTENANCE, QUARANTINE, TABLE, IcebergFaults, iceberg_table
from conftest import ICEBERG_PACKAGES
from headrace.config.spark import SparkConfig
from headrace.errors import HeadraceError
from headrace.spark.session import build_session
from lakehouse import iceberg_settings, lake


class _KilledJvm(IcebergFaults):
    """Kills the JVM around the next commit, once armed."""

    jvm: int | None = None

    def __init__(self, patch: pytest.MonkeyPatch, moment: str, target: str) -> None:
        super().__init__(patch)
        self._moment, self.target = moment, target

    def commit(self, table: str, send: Any) -> None:
        is_target = table == self.target and self.jvm is not None
        if is_target and self._moment == "before":
            self._kill()
        send()
        if is_target and self._moment != "before":
            self._kill()
            if self._moment == "lost":
                # The answer is asked for again, of a JVM that is gone.
                send()

    def _kill(self) -> None:
        assert self.jvm is not None
        os.kill(self.jvm, signal.SIGKILL)
        _await_death(self.jvm)
        self.jvm = None
        print("jvm killed", flush=True)


def _await_death(pid: int) -> None:
    while Path(f"/proc/{pid}/stat").exists():
        if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)


def main(warehouse: str, moment: str, operation: str) -> None:
    spark = build_session(
        SparkConfig(master="local[1]", driver_memory="512m", short_lived=True, packages=ICEBERG_PACKAGES)
    )
    target = QUARANTINE if operation == "quarantine" else TABLE
    faults, place = _KilledJvm(pytest.MonkeyPatch(), moment, target), Path(warehouse)
    settings = iceberg_settings(place, maintenance=MAINTENANCE)
    jvm: Any = spark._jvm
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    try:
        with iceberg_table(settings, partial(lake, place), spark) as table:
            faults.jvm = pid
            getattr(table, f"do_{operation}")()
    except HeadraceError as error:
        print("error", type(error).__name__, flush=True)
    # Without Spark's farewell, which would wait for the JVM.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
