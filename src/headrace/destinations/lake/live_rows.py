"""Rows of the initial copy in a table that keeps deleted rows: none of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ..soft_delete import flagged_live
from .data_files import write_data
from .files import TableLayout, Written

__all__ = ["LiveRows"]


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Writes rows that are not deleted, in a task."""

    layout: TableLayout

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Written:
        return write_data(self.layout, (flagged_live(batch) for batch in batches))
