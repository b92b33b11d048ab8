"""Fields behind one another, each with its length in front (-1 is NULL): the inside of binary arrays, hstores and
ranges.

Where a field starts depends on all fields before it. To follow many chains at once without a step per field, the jump
from every byte position is computed, and jumps are doubled: after k rounds, 2^k fields of every chain are known.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .layout import Bytes, Ints, binaries, malformed

__all__ = ["fields", "int32_at"]


def int32_at(data: Bytes, positions: Ints) -> Ints:
    """Big-endian 32-bit integers at any positions."""
    octets = np.ascontiguousarray(data[positions[:, None] + np.arange(4)])
    numbers: Ints = octets.view(">i4").astype(np.int64).reshape(-1)
    return numbers


def fields(data: Bytes, begins: Ints, ends: Ints, counts: Ints, type_name: str) -> pa.BinaryArray:
    """All fields of the stretches `data[begins[i]:ends[i]]`, which must hold exactly `counts[i]` fields each."""
    if np.any(counts < 0) or np.any((counts == 0) != (begins == ends)) or np.any(4 * counts > ends - begins):
        raise malformed(type_name)
    if not np.any(counts):
        return pa.array([], pa.binary())
    begins, ends, counts = begins[counts > 0], ends[counts > 0], counts[counts > 0]
    starts = _regular(data, begins, ends, counts)
    if starts is None:
        starts = _follow(_sizes_everywhere(data), begins, ends, int(counts.max()))
    if len(starts) != counts.sum() or not np.array_equal(np.searchsorted(starts, begins), np.cumsum(counts) - counts):
        raise malformed(type_name)
    lengths = int32_at(data, starts)
    nexts = starts + 4 + np.maximum(lengths, 0)
    expected = np.append(starts[1:], 0)
    expected[np.cumsum(counts) - 1] = ends
    if np.any(lengths < -1) or np.any(nexts != expected):
        raise malformed(type_name)
    return _contents(data, starts + 4, nexts, lengths)


def _regular(data: Bytes, begins: Ints, ends: Ints, counts: Ints) -> Ints | None:
    """The positions of the fields where all of a stretch have one length, as those of a number have; None otherwise."""
    strides = (ends - begins) // counts
    ranks = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts: Ints = np.repeat(begins, counts) + ranks * np.repeat(strides, counts)
    return starts if np.array_equal(int32_at(data, starts), np.repeat(strides - 4, counts)) else None


def _sizes_everywhere(data: Bytes) -> Ints:
    """The 32-bit integer at every byte position, were a field to start there."""
    padded = np.concatenate([data, np.zeros(3, np.uint8)])
    overlapping: npt.NDArray[np.int32] = np.ndarray((len(data),), ">i4", buffer=padded, strides=(1,))
    return overlapping.astype(np.int64)


def _follow(sizes: Ints, begins: Ints, ends: Ints, longest: int) -> Ints:
    """The positions of all fields: those reached from `begins` in fewer than `longest` jumps, stopping at `ends`."""
    nowhere = len(sizes)
    jump = np.append(np.arange(nowhere) + 4 + np.maximum(sizes, 0), nowhere)
    jump[jump > nowhere] = nowhere
    jump[ends] = nowhere
    reached = np.zeros(nowhere + 1, np.bool_)
    reached[begins] = True
    for _ in range(longest.bit_length()):
        reached[jump[np.flatnonzero(reached)]] = True
        jump = jump[jump]
    reached[ends] = False
    return np.flatnonzero(reached[:-1])


def _contents(data: Bytes, starts: Ints, ends: Ints, lengths: Ints) -> pa.BinaryArray:
    edges = np.zeros(len(data) + 1, np.int8)
    edges[starts] += 1
    edges[ends] -= 1
    inside = np.cumsum(edges[:-1], dtype=np.int8).astype(np.bool_)
    offsets = np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))])
    valid = lengths >= 0
    return binaries(data[inside], offsets, None if valid.all() else valid)
