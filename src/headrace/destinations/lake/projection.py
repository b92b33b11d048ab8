"""A column as a file has it, in the type that the table has now: widened, and what is within a struct found by id."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from .columns import FIELD_ID
from .variant import VARIANT

__all__ = ["projected"]


def projected(column: pa.ChunkedArray, there: pa.Field, wanted: pa.Field) -> pa.ChunkedArray:
    """`there` is the file's field, `wanted` the table's, both with field ids where there are any."""
    if not pa.types.is_struct(wanted.type) or wanted.type.equals(VARIANT):
        return column if column.type.equals(wanted.type) else column.cast(wanted.type)
    if _ids(there) == _ids(wanted) and column.type.equals(wanted.type):
        return column
    return pa.chunked_array([_struct(chunk, there, wanted) for chunk in column.chunks], wanted.type)


def _struct(array: pa.StructArray, there: pa.Field, wanted: pa.Field) -> pa.StructArray:
    places = {_key(child): place for place, child in enumerate(there.type)}
    children = []
    for field in wanted.type:
        place = places.get(_key(field), places.get(field.name))
        if place is None:
            children.append(pa.nulls(len(array), field.type))
        else:
            child = pa.chunked_array([array.field(place)])
            children.append(projected(child, there.type[place], field).combine_chunks())
    return pa.StructArray.from_arrays(children, fields=list(wanted.type), mask=pc.is_null(array))


def _ids(field: pa.Field) -> list[object]:
    return [_key(child) for child in field.type]


def _key(field: pa.Field) -> object:
    """Its id; in a file without ids, its name."""
    return (field.metadata or {}).get(FIELD_ID, field.name)
