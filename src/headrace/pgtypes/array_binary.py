"""The binary form of arrays, and how Postgres prints an array of any shape.

A header (dimensions, flags, element type), length and lower bound of each dimension, then the elements as fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .fields import fields, int32_at
from .layout import Bools, Ints, malformed, scan
from .literal import escape
from .printing import choose, join

__all__ = ["BinaryArrays", "print_arrays", "read_binary_arrays"]

_HEADER = 12
_MAX_DIMENSIONS = 6


@dataclass(frozen=True, slots=True)
class BinaryArrays:
    """A column of arrays. `lengths` and `lower` have one column per dimension, 1 where a value has fewer."""

    dimensions: Ints
    lengths: npt.NDArray[np.int64]
    lower: npt.NDArray[np.int64]
    elements: pa.BinaryArray

    @property
    def counts(self) -> Ints:
        return np.where(self.dimensions == 0, 0, self.lengths.prod(axis=1))

    @property
    def bounded(self) -> Bools:
        return np.asarray(np.any(self.lower != 1, axis=1))

    @property
    def unlike_list(self) -> Bools:
        return np.asarray((self.dimensions > 1) | self.bounded)


def read_binary_arrays(values: pa.BinaryArray, type_name: str) -> BinaryArrays:
    data, offsets = scan(values)
    starts, sizes = offsets[:-1], np.diff(offsets)
    if np.any(sizes < _HEADER):
        raise malformed(type_name)
    dimensions = int32_at(data, starts)
    if np.any((dimensions < 0) | (dimensions > _MAX_DIMENSIONS)) or np.any(sizes < _HEADER + 8 * dimensions):
        raise malformed(type_name)
    lengths = np.ones((len(values), _MAX_DIMENSIONS), np.int64)
    lower = np.ones((len(values), _MAX_DIMENSIONS), np.int64)
    for dimension in range(_MAX_DIMENSIONS):
        having = dimensions > dimension
        lengths[having, dimension] = int32_at(data, starts[having] + _HEADER + 8 * dimension)
        lower[having, dimension] = int32_at(data, starts[having] + _HEADER + 8 * dimension + 4)
    # A product of six 32-bit lengths may wrap; no array has more elements than bytes.
    if np.any(lengths < 1) or np.any(np.prod(lengths.astype(np.float64), axis=1) > np.maximum(sizes, 1)):
        raise malformed(type_name)
    counts = np.where(dimensions == 0, 0, lengths.prod(axis=1))
    elements = fields(data, starts + _HEADER + 8 * dimensions, offsets[1:], counts, type_name)
    return BinaryArrays(dimensions, lengths, lower, elements)


def print_arrays(arrays: BinaryArrays, texts: pa.StringArray, delimiter: str) -> pa.StringArray:
    """`texts` are the elements' texts."""
    offsets = np.concatenate([[0], np.cumsum(arrays.counts)])
    opening, closing = _inner_braces(arrays, offsets)
    pieces = join(opening, _quoted(texts, delimiter), closing)
    rows = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pieces), delimiter)
    return join(_bounds(arrays), "{", rows, "}")


def _quoted(texts: pa.StringArray, delimiter: str) -> pa.StringArray:
    special = rf'^$|^(?i:null)$|["\\{{}}\x09-\x0d ]|{re.escape(delimiter)}'
    needs = pc.match_substring_regex(texts, special)
    return pc.coalesce(pc.if_else(needs, join('"', escape(texts), '"'), texts), "NULL")


def _inner_braces(arrays: BinaryArrays, offsets: Ints) -> tuple[pa.StringArray, pa.StringArray]:
    """Braces before and behind each element: a slice of k inner dimensions begins and ends every so many elements."""
    owners = np.repeat(np.arange(len(arrays.counts)), arrays.counts)
    ranks = np.arange(len(owners)) - offsets[owners]
    opening, closing = np.zeros(len(owners), np.int64), np.zeros(len(owners), np.int64)
    for dimension in range(1, _MAX_DIMENSIONS):
        period = arrays.lengths[:, dimension:].prod(axis=1)[owners]
        sliced = (arrays.dimensions > dimension)[owners]
        opening += sliced & (ranks % period == 0)
        closing += sliced & ((ranks + 1) % period == 0)
    braces = [pa.array([brace * count for count in range(_MAX_DIMENSIONS)]) for brace in "{}"]
    return braces[0].take(pa.array(opening)), braces[1].take(pa.array(closing))


def _bounds(arrays: BinaryArrays) -> pa.StringArray:
    """`[2:4][1:2]=` in front of an array with any lower bound other than 1."""
    pieces = []
    for dimension in range(_MAX_DIMENSIONS):
        lower = arrays.lower[:, dimension]
        upper = lower + arrays.lengths[:, dimension] - 1
        bound = join("[", pa.array(lower).cast(pa.string()), ":", pa.array(upper).cast(pa.string()), "]")
        pieces.append(choose(arrays.dimensions > dimension, bound, ""))
    return choose(arrays.bounded, join(*pieces, "="), "")
