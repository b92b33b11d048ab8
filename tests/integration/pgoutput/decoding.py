"""From captured messages to plain Python rows, the way the tests look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from capture import Connection

from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.changes import ChangeBatch
from headrace.pgoutput.columnar import decode_changes
from headrace.pgoutput.envelope import envelope
from headrace.schema import PgType

Row = dict[str, Any]


def oid(connection: Connection, table: str) -> int:
    found = connection.execute("SELECT %s::regclass::oid", (table,)).fetchone()
    assert found is not None
    return int(found[0])


def change_batches(batch: MessageBatch, table_id: int, types: Mapping[int, PgType] | None = None) -> list[ChangeBatch]:
    found = list(decode_changes(batch, envelope(batch), table_id, types or {}))
    for each in found:
        each.changes.validate(full=True)
        each.rejected.validate(full=True)
    return found


def changes(batch: MessageBatch, table_id: int, types: Mapping[int, PgType] | None = None) -> list[Row]:
    return [row for each in change_batches(batch, table_id, types) for row in each.changes.to_pylist()]


def rejected(batch: MessageBatch, table_id: int) -> list[Row]:
    return [row for each in change_batches(batch, table_id) for row in each.rejected.to_pylist()]


def table_rows(connection: Connection, table: str) -> list[Row]:
    """The oracle: what psycopg reads."""
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY 1")
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def type_of_rows(batch: pa.RecordBatch) -> pa.DataType:
    return batch.schema.field("row").type
