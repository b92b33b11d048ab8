"""Rows of the initial copy in a table that keeps deleted rows: none of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from .data_files import write_data
from .files import TableLayout, Written
from .soft_delete import DELETED_AT, DELETED_FIELDS

__all__ = ["LiveRows"]


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Writes rows that are not deleted, in a task."""

    layout: TableLayout

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Written:
        return write_data(self.layout, (_flagged(batch) for batch in batches))


def _flagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = pa.schema([*batch.schema, *DELETED_FIELDS])
    flags = [pa.repeat(pa.scalar(False), batch.num_rows), pa.nulls(batch.num_rows, schema.field(DELETED_AT).type)]
    return pa.RecordBatch.from_arrays([*batch.columns, *flags], schema=schema)
