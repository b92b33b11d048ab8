"""Changes of a source table as changes of the table at the destination, where that has other columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..initial_copy.reader import copy_columns
from ..pgtypes.registry import TypeOptions
from ..schema import ReplicatedTableSchema
from ..schema_policy import Target

__all__ = ["projected"]

_NOT_THERE = -1


def projected(changes: pa.RecordBatch, schema: ReplicatedTableSchema, target: Target) -> pa.RecordBatch:
    """`row` and `old` with the target's columns, NULL where nothing fills them; `unchanged` counts in those."""
    places = {column.attnum: index for index, column in enumerate(schema.columns)}
    sources = [places.get(target.sources.get(column.attnum, 0), _NOT_THERE) for column in target.schema.columns]
    fields = [pa.field(name, conversion.arrow_type) for name, conversion in copy_columns(target.schema, TypeOptions())]
    columns = {name: changes.column(name) for name in changes.schema.names}
    for name in ("row", "old"):
        columns[name] = _struct(columns[name], sources, fields)
    columns["unchanged"] = _renumbered(columns["unchanged"], sources, len(schema.columns))
    return pa.record_batch(columns)


def _struct(rows: pa.StructArray, sources: list[int], fields: list[pa.Field]) -> pa.StructArray:
    children = rows.flatten()
    taken = [
        pa.nulls(len(rows), field.type) if source == _NOT_THERE else children[source].cast(field.type)
        for source, field in zip(sources, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(taken, fields=fields, mask=rows.is_null())


def _renumbered(unchanged: pa.ListArray, sources: list[int], count: int) -> pa.ListArray:
    """Positions in the source's row as positions in the target's; those of columns it does not have are left out."""
    if unchanged.null_count == len(unchanged):
        return unchanged
    places = np.full(count, _NOT_THERE, dtype=np.int32)
    for place, source in enumerate(sources):
        if source != _NOT_THERE:
            places[source] = place
    lengths: npt.NDArray[np.int64] = unchanged.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    values = places[unchanged.flatten().to_numpy()]
    owners = np.repeat(np.arange(len(unchanged)), lengths)[values != _NOT_THERE]
    offsets = np.zeros(len(unchanged) + 1, dtype=np.int32)
    np.cumsum(np.bincount(owners, minlength=len(unchanged)), out=offsets[1:])
    kept = pa.array(values[values != _NOT_THERE], pa.int32())
    empty = pa.array(np.diff(offsets) == 0)
    return pa.ListArray.from_arrays(pa.array(offsets), kept, type=unchanged.type, mask=empty)
