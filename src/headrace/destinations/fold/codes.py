"""Whole numbers that are equal where values are: what the fold groups rows by, whatever the type of their columns.

Codes are dense (0, 1, 2 …) and NULL has one of its own, equal to itself. NaN equals NaN. Nothing here can collide:
codes come from Arrow's dictionaries, never from hashes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Codes", "combined_codes", "key_column_codes", "value_codes"]

Codes = npt.NDArray[np.int64]

# Products of two code ranges stay below it, so that they fit a signed 64-bit integer.
_CODE_LIMIT = 1 << 62


def key_column_codes(column: pa.ChunkedArray) -> Codes:
    """Codes of a key column: 0.0 and -0.0 are one key, for Postgres's indexes and for every engine that joins by it."""
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))
    return value_codes(column)


def value_codes(column: pa.ChunkedArray) -> Codes:
    """Codes of a column: equal for values that Postgres prints alike (0.0 and -0.0 are two values)."""
    if pa.types.is_map(column.type):
        entries = pa.struct([column.type.key_field, column.type.item_field])
        column = column.cast(pa.list_(entries))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _list_codes(column)
    if pa.types.is_struct(column.type):
        return _struct_codes(column)
    return _dictionary_codes(column)


def combined_codes(parts: Sequence[Codes]) -> Codes:
    """Codes of rows, from those of their columns: equal where all of them are."""
    codes, *rest = parts
    size = _size(codes)
    for part in rest:
        part_size = _size(part)
        if size * part_size >= _CODE_LIMIT:
            codes = _dense(codes)
            size = _size(codes)
        codes = codes * part_size + part
        size *= part_size
    return _dense(codes) if rest else codes


def _list_codes(column: pa.ChunkedArray) -> Codes:
    """A list is the bytes of its elements' codes, eight for each, so two lists are equal iff their bytes are."""
    elements = value_codes(pc.list_flatten(column))
    lengths = pc.list_value_length(column).combine_chunks()
    missing = lengths.is_null()
    sizes = lengths.fill_null(0).to_numpy().astype(np.int64)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes * elements.itemsize, out=offsets[1:])
    texts = pa.Array.from_buffers(
        pa.large_binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(elements))]
    )
    null = pa.scalar(None, pa.large_binary())
    return _dictionary_codes(pa.chunked_array([pc.if_else(missing, null, texts)]))


def _struct_codes(column: pa.ChunkedArray) -> Codes:
    present = column.is_valid().to_numpy().astype(np.int64)
    return combined_codes([present, *(value_codes(child) for child in column.flatten())])


def _dictionary_codes(column: pa.ChunkedArray) -> Codes:
    chunks = column.dictionary_encode(null_encoding="encode").chunks
    if not chunks:
        return np.empty(0, dtype=np.int64)
    # Every chunk has the dictionary of the whole column.
    return np.concatenate([chunk.indices.to_numpy() for chunk in chunks]).astype(np.int64)


def _dense(codes: Codes) -> Codes:
    return _dictionary_codes(pa.chunked_array([pa.array(codes)]))


def _size(codes: Codes) -> int:
    return int(codes.max(initial=-1)) + 1
