"""The columns by which a table tells the rows that are deleted at the source."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["DELETED", "DELETED_AT", "DELETED_FIELDS", "flagged_live"]

DELETED = "_headrace_deleted"
DELETED_AT = "_headrace_deleted_at"
DELETED_FIELDS = (
    pa.field(DELETED, pa.bool_()),
    pa.field(DELETED_AT, pa.timestamp("us", "UTC")),
)
"""Whether the row is deleted at the source, and since which commit."""


def flagged_live(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the initial copy: none of them is deleted."""
    schema = pa.schema([*batch.schema, *DELETED_FIELDS])
    flags = [pa.repeat(pa.scalar(False), batch.num_rows), pa.nulls(batch.num_rows, schema.field(DELETED_AT).type)]
    return pa.RecordBatch.from_arrays([*batch.columns, *flags], schema=schema)
