"""What happens to a value its Arrow type cannot hold: NULL in the column, its text beside it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .contract import Converted, Rejected
from .layout import Bools, malformed

__all__ = ["cast_or_reject", "cast_texts", "reject"]


def cast_texts(texts: pa.StringArray, arrow_type: pa.DataType, type_name: str) -> pa.Array:
    """Arrow's own cast, for types whose every text fits."""
    try:
        return texts.cast(arrow_type)
    except pa.ArrowInvalid:
        # Arrow's message quotes the value: it must not travel on as a cause.
        raise malformed(type_name) from None


def cast_or_reject(
    texts: pa.StringArray,
    arrow_type: pa.DataType,
    type_name: str,
    unrepresentable: Callable[[pa.StringArray], pa.BooleanArray],
) -> Converted:
    """Arrow's own cast; only when it fails, look for the values that `unrepresentable` names and set them aside."""
    try:
        return Converted(texts.cast(arrow_type))
    except pa.ArrowInvalid:
        bad = pc.fill_null(unrepresentable(texts), False)
    remaining = pc.if_else(bad, pa.scalar(None, pa.string()), texts)
    values = cast_texts(remaining, arrow_type, type_name)
    return reject(values, bad.to_numpy(zero_copy_only=False), texts.filter(bad))


def reject(values: pa.Array, bad: Bools, texts: pa.StringArray) -> Converted:
    """Mark values as rejected. `values` already is NULL where `bad` is true; `texts` are those of the bad ones, in
    order.
    """
    if not bad.any():
        return Converted(values)
    return Converted(values, Rejected(pa.array(np.flatnonzero(bad)), texts))
