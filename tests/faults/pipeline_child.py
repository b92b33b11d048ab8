"""A pipeline in a process of its own, to be killed: `python pipeline_child.py CONFIG DESTINATION [TABLE]`.

CONFIG is a file with a pickled PipelineConfig. What the pipeline has come to is told on stdout, a line each: starting,
running, and ready when all tables are. Then TABLE, if one is named, is copied again.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from headrace.pipeline import Pipeline, PipelineState
from headrace.stores import SqliteStore
from headrace.table_state import State
from headrace.telemetry.logging import configure_logging
from headrace.testing.durable_destination import DurableDestination

_TURN_S = 0.05


def main(settings: str, destination: str, *resync: str) -> None:
    config = pickle.loads(Path(settings).read_bytes())
    configure_logging(config.log, pipeline=config.id)
    print("starting", flush=True)
    with Pipeline(config, SqliteStore(config.store_path, config.id), DurableDestination(destination)) as pipeline:
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


if __name__ == "__main__":
    main(*sys.argv[1:])
