"""json, jsonb: kept as Postgres prints them, spaces, key order and all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .layout import binaries, malformed, scan
from .text import print_text

__all__ = ["print_versioned"]


def print_versioned(values: pa.BinaryArray) -> pa.StringArray:
    """Print jsonb (and jsonpath), which send a version byte, always 1 so far, and the text."""
    data, offsets = scan(values)
    if np.any(np.diff(offsets) < 1) or np.any(data[offsets[:-1]] != 1):
        raise malformed("jsonb")
    body = np.ones(len(data), np.bool_)
    body[offsets[:-1]] = False
    return print_text(binaries(data[body], offsets - np.arange(len(offsets))))
