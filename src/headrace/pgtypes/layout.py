"""Arrow strings and binaries as numpy sees them: one run of bytes and the offsets of the values in it.

Literals are read without a loop over values by working on that run as a whole. Values are made dense
(no NULLs) first, so that the run holds nothing but values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ProtocolError

__all__ = [
    "Bools",
    "Bytes",
    "Ints",
    "binaries",
    "dense_apply",
    "malformed",
    "scan",
    "strings",
    "with_nulls",
]

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def malformed(type_name: str) -> ProtocolError:
    """The error for bytes that Postgres does not send for a type; it names the type, never the value."""
    return ProtocolError(f"a value of type {type_name} is not in the form Postgres sends")


def scan(values: pa.Array) -> tuple[Bytes, Ints]:
    """The bytes of all values in one run, and the n + 1 offsets of the values in it."""
    if len(values) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    run = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return run[bounds[0] : bounds[-1]], bounds - bounds[0]


def binaries(data: Bytes, offsets: npt.NDArray[Any], valid: Bools | None = None) -> pa.BinaryArray:
    return _array(pa.binary(), data, offsets, valid)


def strings(data: Bytes, offsets: npt.NDArray[Any], valid: Bools | None = None) -> pa.StringArray:
    """Build a string array from bytes that are known to be UTF-8."""
    return _array(pa.string(), data, offsets, valid)


def _array(arrow_type: pa.DataType, data: Bytes, offsets: npt.NDArray[Any], valid: Bools | None) -> pa.Array:
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    bounds = pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
    text = pa.py_buffer(np.ascontiguousarray(data))
    return pa.Array.from_buffers(arrow_type, len(offsets) - 1, [validity, bounds, text])


def with_nulls(dense: pa.Array, valid: pa.BooleanArray) -> pa.Array:
    """Put dense values back to the places where `valid` is true; the other places are NULL."""
    present = valid.to_numpy(zero_copy_only=False)
    places = np.cumsum(present) - 1
    return dense.take(pa.array(places, mask=~present))


def dense_apply(function: Callable[[pa.Array], pa.Array], values: pa.Array) -> pa.Array:
    """Apply a function that knows no NULLs to a column that may have some."""
    if values.null_count == 0:
        return function(values)
    return with_nulls(function(values.drop_null()), pc.is_valid(values))
