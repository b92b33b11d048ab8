"""Arrow values as Python has them, for those who take rows one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["python_rows", "with_short_floats"]


def python_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows by column name. A value of type real is what Postgres prints of it."""
    # Built anew, rows without columns would be none.
    if rows.num_columns == 0:
        return [{} for _ in range(rows.num_rows)]
    columns = [with_short_floats(column) for column in rows.columns]
    found: list[dict[str, Any]] = type(rows).from_arrays(columns, rows.schema.names).to_pylist(maps_as_pydicts="strict")
    return found


def with_short_floats(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Single precision as double, also within lists, maps and rows: 0.1 stays 0.1, and is not 0.10000000149011612."""
    double = _replaced(values.type, pa.float64())
    # By way of the shortest text that reads as the same number.
    return values if double == values.type else values.cast(_replaced(values.type, pa.string())).cast(double)


def _replaced(kind: pa.DataType, single: pa.DataType) -> pa.DataType:
    """The type with another in place of single precision."""
    if pa.types.is_float32(kind):
        return single
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_replaced(kind.value_type, single)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_replaced(kind.item_type, single)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_replaced(field.type, single)) for field in kind])
    return kind
