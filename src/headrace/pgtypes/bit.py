"""bit, varbit: kept as their text of zeros and ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .layout import malformed, scan, strings

__all__ = ["print_bits"]

_HEADER = 4


def print_bits(values: pa.BinaryArray) -> pa.StringArray:
    """The binary form is the number of bits, then the bits, padded to whole bytes."""
    data, offsets = scan(values)
    sizes = np.diff(offsets) - _HEADER
    if np.any(sizes < 0):
        raise malformed("bit")
    header = data[offsets[:-1, None] + np.arange(_HEADER)].astype(np.int64)
    counts = header @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    if np.any((counts + 7) // 8 != sizes):
        raise malformed("bit")
    body = np.ones(len(data), np.bool_)
    body[offsets[:-1, None] + np.arange(_HEADER)] = False
    bits = np.unpackbits(data[body])
    firsts = 8 * (np.cumsum(sizes) - sizes)
    places = np.arange(len(bits)) - np.repeat(firsts, 8 * sizes)
    keep = places < np.repeat(counts, 8 * sizes)
    return strings(bits[keep] + np.uint8(ord("0")), np.concatenate([[0], np.cumsum(counts)]))
