"""A pipeline in a process of its own, to be killed: `python pipeline_child.py CONFIG DESTINATION [TABLE]`.

CONFIG is a file with a pickled PipelineConfig; DESTINATION is of a DurableDestination, where CONFIG names none.
What the pipeline has come to is told on stdout, a line each: starting, running, and ready when all tables are. Then
TABLE, if one is named, is copied again. With STOP_AT in the environment, `commit.before 3` say, it stops for good as
the third commit to an Iceberg table is about to be made, and tells that too. SIGUSR1 has it write to stderr where its
threads are.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from headrace.destinations.iceberg.table import IcebergTable
from headrace.pipeline import Pipeline, PipelineState
from headrace.pipeline.build import build_destination
from headrace.stores import SqliteStore
from headrace.table_state import State
from headrace.telemetry.logging import configure_logging
from headrace.testing.durable_destination import DurableDestination

_TURN_S = 0.05


def main(settings: str, destination: str, *resync: str) -> None:
    faulthandler.register(signal.SIGUSR1)
    config = pickle.loads(Path(settings).read_bytes())
    configure_logging(config.log, pipeline=config.id)
    if "STOP_AT" in os.environ:
        stop_at(*os.environ["STOP_AT"].split())
    print("starting", flush=True)
    given = DurableDestination(destination) if config.destination is None else build_destination(config)
    with Pipeline(config, SqliteStore(config.store_path, config.id), given) as pipeline:
        pipeline.start()
        until(pipeline, lambda: pipeline.status.state is PipelineState.RUNNING, "running")
        until(pipeline, lambda: all(t.state.state is State.READY for t in pipeline.status.tables.values()), "ready")
        for table in resync:
            pipeline.resync(table)
        pipeline.wait()


def until(pipeline: Pipeline, condition: object, word: str) -> None:
    assert callable(condition)
    while not condition():
        assert not pipeline.wait(_TURN_S)
    print(word, flush=True)


def stop_at(point: str, count: str) -> None:
    """`commit` is of a batch or a copy, `rewrite` of a compaction; `before` it or `after`."""
    method, when = point.split(".")
    name = {"commit": "commit", "rewrite": "replace_files"}[method]
    plain = getattr(IcebergTable, name)
    left = iter(range(int(count) - 1, 0, -1))
    lock = threading.Lock()

    def stopping(self: IcebergTable, *arguments: Any) -> None:
        with lock:
            due = next(left, None) is None
            if due and when == "before":
                stand_still(point)
            plain(self, *arguments)
            if due:
                stand_still(point)

    setattr(IcebergTable, name, stopping)


def stand_still(point: str) -> None:
    print(point, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
