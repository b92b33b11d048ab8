"""What rows that existed before a column show in it."""

from __future__ import annotations

import pyarrow as pa

from ..pgtypes.registry import conversion_for
from ..schema import Column

__all__ = ["existing_value", "existing_values"]


def existing_value(column: Column) -> pa.Scalar:
    """Postgres's `attmissingval` as a value of the column's Arrow type; NULL where there is none, or none fits."""
    conversion = conversion_for(column.type, column.typmod)
    return conversion.from_text(pa.array([column.missing], pa.string())).values[0]


def existing_values(column: Column, size: int) -> pa.Array:
    """The same for so many rows."""
    value = existing_value(column)
    # pyarrow cannot repeat a list no times.
    return pa.repeat(value, size) if size else pa.array([], value.type)
