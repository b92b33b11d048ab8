"""Bounds: whether any of the values sought may be in a file or row group, by its lowest and highest value.

A type whose order is not certain to be the same everywhere (floats with NaN and two zeros, nested ones) is never
decided on: then everything is read.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.utils.decimal import unscaled_to_decimal

__all__ = ["SoughtValues", "bound_value", "is_whole_number", "sought_values", "statistics_range", "whole_numbers"]

_LONG_BYTES = 8
_INT_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class SoughtValues:
    """The distinct values sought in one column, ascending."""

    values: Any
    place: Callable[[Any], int]
    """How many of them are below a value."""

    def any_within(self, lower: Any, upper: Any) -> bool:
        at = self.place(lower)
        return at < len(self.values) and self._at(at) <= upper

    def _at(self, index: int) -> Any:
        value = self.values[index]
        return value.as_py() if isinstance(value, pa.Scalar) else value


def sought_values(column: pa.ChunkedArray) -> SoughtValues | None:
    """None where bounds cannot tell: a type without a certain order, or NULL among the values."""
    kind = column.type
    if column.null_count:
        return None
    if is_whole_number(kind):
        numbers = np.unique(whole_numbers(column))
        return SoughtValues(numbers, lambda value: int(np.searchsorted(numbers, value)))
    if any(
        test(kind) for test in (pa.types.is_string, pa.types.is_binary, pa.types.is_decimal128, pa.types.is_boolean)
    ):
        distinct = pc.unique(column)
        # Arrow sorts texts by their bytes, which is the order of their code points, which is Python's.
        ordered = distinct.take(pc.array_sort_indices(distinct))
        return SoughtValues(
            ordered, lambda value: bisect.bisect_left(ordered, value, key=lambda scalar: scalar.as_py())
        )
    return None


def is_whole_number(kind: pa.DataType) -> bool:
    """Whether values are whole numbers underneath, in the unit Iceberg keeps them in."""
    return bool(
        pa.types.is_signed_integer(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.unit == "us")
    )


def whole_numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return np.asarray(column.cast(pa.int64()).to_numpy())


def bound_value(kind: IcebergType, raw: bytes) -> Any | None:
    """A bound in Iceberg's single-value form; None if it cannot be used.

    A column may have been widened (int to long) since the file was written: its bounds are still the short ones.
    """
    if isinstance(kind, (IntegerType, LongType, DateType)) and len(raw) in (_INT_BYTES, _LONG_BYTES):
        return int.from_bytes(raw, "little", signed=True)
    if isinstance(kind, (TimestampType, TimestamptzType)) and len(raw) == _LONG_BYTES:
        return int.from_bytes(raw, "little", signed=True)
    if isinstance(kind, DecimalType):
        return unscaled_to_decimal(int.from_bytes(raw, "big", signed=True), kind.scale)
    if isinstance(kind, StringType):
        return _text(raw)
    if isinstance(kind, BooleanType):
        return raw != b"\x00"
    return raw if isinstance(kind, BinaryType) else None


def statistics_range(kind: pa.DataType, chunk: pq.ColumnChunkMetaData) -> tuple[Any, Any] | None:
    """Lowest and highest value of a row group's column, which in the file is of this type; None if not known."""
    statistics = chunk.statistics if chunk.is_stats_set else None
    if statistics is None or not statistics.has_min_max:
        return None
    found = _comparable(kind, statistics.min_raw), _comparable(kind, statistics.max_raw)
    return None if found[0] is None or found[1] is None else found


def _comparable(kind: pa.DataType, raw: Any) -> Any | None:
    if is_whole_number(kind) or pa.types.is_boolean(kind):
        return raw
    if pa.types.is_decimal128(kind):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return unscaled_to_decimal(unscaled, kind.scale)
    if pa.types.is_string(kind):
        return raw if isinstance(raw, str) else _text(raw)
    if pa.types.is_binary(kind):
        return raw if isinstance(raw, bytes) else None
    return None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
