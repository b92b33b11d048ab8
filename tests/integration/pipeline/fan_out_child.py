"""A pipeline with two destinations in a process of its own, to be killed: `python fan_out_child.py CONFIG DIRECTORY`.

Tells `ready` when all tables are, and `writing` at the first batch after that.
"""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path

from headrace.pipeline import Pipeline
from headrace.pipeline.build import build_store
from headrace.table_state import State
from headrace.telemetry.logging import configure_logging
from headrace.testing.durable_destination import DurableDestination

NAMES = ("well", "sick")


def main(settings: str, directory: str) -> None:
    config = pickle.loads(Path(settings).read_bytes())
    configure_logging(config.log, pipeline=config.id)
    ready, told = threading.Event(), threading.Event()

    def wrote(method: str, _table: str) -> None:
        if method == "write_events" and ready.is_set() and not told.is_set():
            told.set()
            print("writing", flush=True)

    destinations = {name: DurableDestination(Path(directory) / f"{name}.db", after_commit=wrote) for name in NAMES}
    stores = {name: build_store(config, name) for name in NAMES}
    with Pipeline(config, stores, destinations) as pipeline:
        pipeline.start()
        while not pipeline.wait(0.05):
            tables = pipeline.status.tables.values()
            if len(tables) == 4 and all(table.state.state is State.READY for table in tables) and not ready.is_set():
                ready.set()
                print("ready", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
