"""Copies so many parts of 8 MiB into a DuckDB file or a lake, and prints by how many MiB its memory grew at most."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.config.duckdb import DuckDBConfig, DuckLakeConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import arrow_schema_of

BIG = example_table(1, "big", {"id": "int8", "text": "text"}, ("id",))
_ROWS = 8_192
_TEXT = 1_000


@dataclass(frozen=True)
class MadeRows:
    """Rows that are made when they are read, a part at a time."""

    parts: int

    @property
    def arrow_schema(self) -> pa.Schema:
        return arrow_schema_of(BIG)

    def _part(self, number: int) -> pa.RecordBatch:
        ids = np.arange(number * _ROWS, (number + 1) * _ROWS)
        # Nothing that could be packed.
        texts = np.random.default_rng(number).integers(97, 123, _ROWS * _TEXT, np.uint8)
        ends = np.arange(0, len(texts) + 1, _TEXT, dtype=np.int32)
        column = pa.StringArray.from_buffers(_ROWS, pa.py_buffer(ends), pa.py_buffer(texts))
        return pa.record_batch([pa.array(ids), column], schema=self.arrow_schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return map(self._part, range(self.parts))

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], Any]) -> list[Any]:
        return [write(iter([batch])) for batch in self.batches()]

    def rejected(self) -> None:
        return None


def own_mib() -> int:
    """What is not of a file: mapped files are in memory for as long as there is room."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("RssAnon:")[2].split()[0]) >> 10


class Peak(threading.Thread):
    """The most there was while it ran."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mib = 0
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.005):
            self.mib = max(self.mib, own_mib())

    def stop(self) -> int:
        self._done.set()
        self.join()
        return self.mib


def main(kind: str, root: Path, parts: int) -> None:
    # A lake's files have row groups that must fit.
    engine = {"memory_limit": "100MB" if kind == "duckdb" else "400MB", "threads": 1}
    if kind == "duckdb":
        destination = DuckDBDestination(DuckDBConfig.model_validate({"database": str(root / "db"), "engine": engine}))
    else:
        catalog = {"type": "sqlite", "uri": str(root / "catalog")}
        lake = {"catalog": catalog, "data_path": str(root / "data"), "staging": str(root), "engine": engine}
        destination = DuckDBDestination(DuckLakeConfig.model_validate(lake))
    destination.startup(DestinationContext(1, MemoryStore(), None, (BIG,)))
    destination.write_table_rows(BIG, MadeRows(1), 0)  # type: ignore[arg-type]
    before, peak = own_mib(), Peak()
    peak.start()
    destination.write_table_rows(BIG, MadeRows(parts), 1)  # type: ignore[arg-type]
    written = destination.copied_parts(BIG)
    destination.shutdown()
    assert written == frozenset({0, 1})
    print(peak.stop() - before)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
