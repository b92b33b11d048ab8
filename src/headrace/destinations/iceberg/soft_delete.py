"""The columns by which a table tells the rows that are deleted at the source."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["DELETED", "DELETED_AT", "DELETED_FIELDS"]

DELETED = "_headrace_deleted"
DELETED_AT = "_headrace_deleted_at"
DELETED_FIELDS = (
    pa.field(DELETED, pa.bool_()),
    pa.field(DELETED_AT, pa.timestamp("us", "UTC")),
)
"""Whether the row is deleted at the source, and since which commit."""
