"""uuid: kept as its text, 36 characters."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .layout import fixed_width, strings
from .printing import hexadecimal

__all__ = ["print_uuid"]

_LENGTH = 36
_DASHES = np.array([8, 13, 18, 23])
_DIGITS = np.setdiff1d(np.arange(_LENGTH), _DASHES)


def print_uuid(values: pa.BinaryArray) -> pa.StringArray:
    octets = fixed_width(values, "V16", "uuid").view(np.uint8).reshape(-1, 16)
    text = np.full((len(octets), _LENGTH), ord("-"), np.uint8)
    text[:, _DIGITS] = hexadecimal(octets)
    return strings(text.reshape(-1), np.arange(len(octets) + 1) * _LENGTH)
