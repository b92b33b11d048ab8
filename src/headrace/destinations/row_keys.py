"""How a row is named where its value is put aside: by its key, as a JSON object of texts."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from ..schema import ReplicatedTableSchema

__all__ = ["row_keys"]


def row_keys(schema: ReplicatedTableSchema, rows: pa.RecordBatch) -> pa.StringArray:
    """Each row's identity (the primary key where there is one) as a JSON object of texts; NULL without one."""
    columns = [column for column in schema.table.key if column in schema.mask] or list(schema.identity)
    names = [column.name for column in columns if _castable(rows.schema.field(column.name).type)]
    if not names:
        return pa.nulls(rows.num_rows, pa.string())
    members = [_member(name, rows.column(name)) for name in names]
    return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*members, ", "), "}", "")


def _castable(type: pa.DataType) -> bool:
    return not (pa.types.is_nested(type) or pa.types.is_binary(type))


def _member(name: str, values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        text = pc.replace_substring(text, plain, escaped)
    quoted = pc.binary_join_element_wise('"', text, '"', "")
    return pc.binary_join_element_wise(f"{json.dumps(name)}: ", pc.fill_null(quoted, "null"), "")
