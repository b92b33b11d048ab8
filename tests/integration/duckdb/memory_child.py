"""Writes so many parts of 8 MiB into a DuckDB file or a lake, and prints by how many MiB its memory grew at most.

They are parts of a copy, or of one batch of changes, which are merged into a table or added to a log.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.config.duckdb import DuckDBConfig, DuckLakeConfig
from headrace.destinations.batch import Changes, EventBatch, TableBatch
from headrace.destinations.contract import DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.lsn import INVALID_LSN, Lsn
from headrace.pgoutput.changes import CHANGE_FIELDS
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import arrow_schema_of

BIG = example_table(1, "big", {"id": "int8", "text": "text"}, ("id",))
_ROWS = 8_192
_TEXT = 1_000
_ROW = pa.struct(list(arrow_schema_of(BIG)))
_CHANGES = pa.schema([*CHANGE_FIELDS, pa.field("row", _ROW), pa.field("old", _ROW)])
_END = Lsn(200)


@dataclass(frozen=True)
class MadeRows:
    """Rows that are made when they are read, a part at a time."""

    parts: int
    make: Callable[[int], pa.RecordBatch]
    arrow_schema: pa.Schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        return map(self.make, range(self.parts))

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], Any]) -> list[Any]:
        return [write(iter([batch])) for batch in self.batches()]

    def together(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> MadeRows:
        """Part by part, which no two have a key of: the function is not what is looked at."""

        def made(number: int) -> pa.RecordBatch:
            (batch,) = function(pa.Table.from_batches([self.make(number)])).combine_chunks().to_batches()
            return batch

        return MadeRows(self.parts, made, schema)

    def rejected(self) -> None:
        return None


def copied(number: int) -> pa.RecordBatch:
    ids = np.arange(number * _ROWS, (number + 1) * _ROWS)
    # Nothing that could be packed.
    texts = np.random.default_rng(number).integers(97, 123, _ROWS * _TEXT, np.uint8)
    ends = np.arange(0, len(texts) + 1, _TEXT, dtype=np.int32)
    column = pa.StringArray.from_buffers(_ROWS, pa.py_buffer(ends), pa.py_buffer(texts))
    return pa.record_batch([pa.array(ids), column], schema=arrow_schema_of(BIG))


def updated(number: int) -> pa.RecordBatch:
    row = copied(number).to_struct_array()
    known = {"op": "U", "commit_lsn": 100, "xid": 1, "start_lsn": 100, "commit_time": datetime.now(UTC)}
    columns: dict[str, pa.Array] = {name: pa.repeat(value, _ROWS) for name, value in known.items()}
    columns |= {"tx_ordinal": row.field("id"), "row": row}
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(_ROWS, field.type)
        for field in _CHANGES
    ]
    return pa.record_batch(arrays, schema=_CHANGES)


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


def opened(kind: str, mode: str, root: Path) -> DuckDBDestination:
    # A lake's files have row groups that must fit.
    engine = {"memory_limit": "100MB" if kind == "duckdb" else "400MB", "threads": 1}
    common = {"engine": engine, "mode": mode}
    if kind == "duckdb":
        destination = DuckDBDestination(DuckDBConfig.model_validate({"database": str(root / "db"), **common}))
    else:
        catalog = {"type": "sqlite", "uri": str(root / "catalog")}
        lake = {"catalog": catalog, "data_path": str(root / "data"), "staging": str(root), **common}
        destination = DuckDBDestination(DuckLakeConfig.model_validate(lake))
    destination.startup(DestinationContext(1, MemoryStore(), None, (BIG,)))
    destination.claim()
    return destination


def main(kind: str, what: str, root: Path, parts: int) -> None:
    destination = opened(kind, "mirror" if what == "copy" else what, root)
    destination.write_table_rows(BIG, MadeRows(1, copied, arrow_schema_of(BIG)), 0)  # type: ignore[arg-type]
    before, peak = own_mib(), Peak()
    peak.start()
    if what == "copy":
        destination.write_table_rows(BIG, MadeRows(parts, copied, arrow_schema_of(BIG)), 1)  # type: ignore[arg-type]
        assert destination.copied_parts(BIG) == frozenset({0, 1})
    else:
        changes = Changes(BIG, MadeRows(parts, updated, _CHANGES))  # type: ignore[arg-type]
        destination.write_events(EventBatch(_END, (TableBatch(BIG, INVALID_LSN, (changes,)),), lambda: iter(())))
        assert destination.applied_lsn(BIG) == _END
    destination.shutdown()
    print(peak.stop() - before)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
