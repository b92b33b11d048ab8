"""Changes of a source table as changes of the table at the destination, where that has other columns."""

from __future__ import annotations

import pyarrow as pa

from ..destinations.unchanged import NOT_THERE, renumbered
from ..initial_copy.reader import copy_columns
from ..pgtypes.registry import TypeOptions
from ..schema import ReplicatedTableSchema
from ..schema_policy import Target

__all__ = ["projected"]


def projected(changes: pa.RecordBatch, schema: ReplicatedTableSchema, target: Target) -> pa.RecordBatch:
    """`row` and `old` with the target's columns, NULL where nothing fills them; `unchanged` counts in those."""
    places = {column.attnum: index for index, column in enumerate(schema.columns)}
    sources = [places.get(target.sources.get(column.attnum, 0), NOT_THERE) for column in target.schema.columns]
    fields = [pa.field(name, conversion.arrow_type) for name, conversion in copy_columns(target.schema, TypeOptions())]
    columns = {name: changes.column(name) for name in changes.schema.names}
    for name in ("row", "old"):
        columns[name] = _struct(columns[name], sources, fields)
    columns["unchanged"] = renumbered(columns["unchanged"], sources, len(schema.columns))
    return pa.record_batch(columns)


def _struct(rows: pa.StructArray, sources: list[int], fields: list[pa.Field]) -> pa.StructArray:
    children = rows.flatten()
    taken = [
        pa.nulls(len(rows), field.type) if source == NOT_THERE else children[source].cast(field.type)
        for source, field in zip(sources, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(taken, fields=fields, mask=rows.is_null())
