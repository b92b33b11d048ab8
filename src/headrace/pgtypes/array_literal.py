"""Array literals of one dimension, `{a,"b c",NULL}`, read all at once: marks over the bytes of the column, no step per
value.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .layout import Bools, Bytes, Ints, malformed, scan, strings
from .literal import read_quoting

__all__ = ["read_literals"]

_OPEN, _CLOSE = ord("{"), ord("}")
_NULL = np.frombuffer(b"NULL", np.uint8)


def read_literals(texts: pa.StringArray, delimiter: str, type_name: str) -> tuple[pa.StringArray, Ints]:
    """All elements' texts (NULL where unquoted NULL), and the offsets of the arrays in them."""
    data, offsets = scan(texts)
    quoting = read_quoting(data, offsets[1:], type_name)
    boundary = ~quoting.inside & ((data == ord(delimiter)) | (data == _OPEN) | (data == _CLOSE))
    bounds = np.flatnonzero(boundary)
    _check_braces(data, offsets, bounds, type_name)
    starts, ends = _elements(data, bounds, type_name)
    null = _nulls(data, starts, ends)
    keep = ~(boundary | quoting.quotes)
    keep[quoting.escapes] = False
    keep[starts[null][:, None] + 1 + np.arange(4)] = False
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    bounds_of_elements = np.append(kept_before[starts], kept_before[-1])
    elements = strings(data[keep], bounds_of_elements, ~null if null.any() else None)
    return elements, np.searchsorted(starts, offsets)


def _check_braces(data: Bytes, offsets: Ints, bounds: Ints, type_name: str) -> None:
    """One opening brace, first, and one closing brace, last, in every literal."""
    kinds = data[bounds]
    opens, closes = bounds[kinds == _OPEN], bounds[kinds == _CLOSE]
    if not (np.array_equal(opens, offsets[:-1]) and np.array_equal(closes, offsets[1:] - 1)):
        raise malformed(type_name)


def _elements(data: Bytes, bounds: Ints, type_name: str) -> tuple[Ints, Ints]:
    """The boundaries before and behind each element. `{}` has none; anywhere else an element has at least one byte."""
    opening = data[bounds] != _CLOSE
    starts = bounds[opening]
    ends = bounds[np.flatnonzero(opening) + 1]
    nothing = ends - starts == 1
    if np.any(nothing & ~((data[starts] == _OPEN) & (data[ends] == _CLOSE))):
        raise malformed(type_name)
    return starts[~nothing], ends[~nothing]


def _nulls(data: Bytes, starts: Ints, ends: Ints) -> Bools:
    null: Bools = ends - starts - 1 == len(_NULL)
    candidates = np.flatnonzero(null)
    null[candidates] = np.all(data[starts[candidates][:, None] + 1 + np.arange(len(_NULL))] == _NULL, axis=1)
    return null
