"""What a task reads: batches of rows with what they cost and what could not be held. Pickled to where the task runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PartReport", "Read", "Reader"]


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A batch, the values that are NULL in it because no Arrow type holds them, and the bytes it came from."""

    rows: pa.RecordBatch
    rejected: pa.RecordBatch | None = None
    bytes: int = 0


class Reader(Protocol):
    """Reads a part, anywhere: in a task, or in the driver."""

    def __call__(self, part: Any) -> Iterator[Read]: ...


@dataclass(frozen=True, slots=True)
class PartReport:
    """What reading a part came to."""

    rows: int = 0
    bytes: int = 0
    rejected: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    """Of changes; rows of a copy count in `rows` only."""

    def plus(self, read: Read) -> PartReport:
        rejected = 0 if read.rejected is None else read.rejected.num_rows
        return self.total([self, PartReport(read.rows.num_rows, read.bytes, rejected, *_operations(read.rows))])

    @classmethod
    def total(cls, reports: Iterable[PartReport]) -> PartReport:
        # Asked for every table of a status: not by `astuple`, which copies each value.
        return cls(*(sum(column) for column in zip(*map(_FIGURES, reports), strict=True)))


_FIGURES = attrgetter(*(field.name for field in fields(PartReport)))


def _operations(rows: pa.RecordBatch) -> tuple[int, int, int]:
    """How many inserts, updates and deletes."""
    if "op" not in rows.schema.names:
        return 0, 0, 0
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(rows.column("op")).to_pylist()}
    return counts.get("I", 0), counts.get("U", 0), counts.get("D", 0)
