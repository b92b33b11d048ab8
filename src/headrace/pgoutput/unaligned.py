"""Fixed-width big-endian numbers read from anywhere in a buffer, many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["big_endian"]


def big_endian(data: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    """A view whose element i is the unsigned number in `data[i : i + width]`; index it with an array of positions."""
    view: npt.NDArray[np.unsignedinteger[Any]] = np.ndarray(
        (max(len(data) - width + 1, 0),), dtype=f">u{width}", buffer=data, strides=(1,)
    )
    return view
