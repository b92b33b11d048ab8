"""The binary form of numeric: a header of four 16-bit words, then the digits in groups of four (base 10,000).

The header is the number of groups, the weight of the first group (in groups before the point, less one), the sign and
the number of decimals to show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .layout import Bools, Ints, malformed, scan, strings
from .printing import choose

__all__ = ["print_numeric", "scaled_integers"]

_NEGATIVE = 0x4000
_SPECIAL = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_HEADER = 4
_LARGEST_PART = 8e18
"""What a first group may amount to: the groups behind it add less than 10^18, and the sum must fit an int64."""
_POWERS = 10 ** np.arange(19, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Numerics:
    """The values of a column, taken apart. Groups of value i are `groups[starts[i]:starts[i] + counts[i]]`."""

    groups: Ints
    starts: Ints
    counts: Ints
    weights: Ints
    signs: Ints
    scales: Ints

    @property
    def negative(self) -> Bools:
        return np.asarray(self.signs == _NEGATIVE)

    @property
    def special(self) -> Bools:
        return np.asarray(self.signs >= 0xC000)


def _take_apart(values: pa.BinaryArray) -> _Numerics:
    data, offsets = scan(values)
    if len(data) % 2 or np.any(offsets % 2) or np.any(np.diff(offsets) < 2 * _HEADER):
        raise malformed("numeric")
    words = np.frombuffer(data, ">u2").astype(np.int64)
    starts = offsets[:-1] // 2
    counts = words[starts]
    weights = (words[starts + 1] ^ 0x8000) - 0x8000
    if np.any(np.diff(offsets) // 2 != _HEADER + counts):
        raise malformed("numeric")
    return _Numerics(words, starts + _HEADER, counts, weights, words[starts + 2], words[starts + 3])


def _ranks(counts: Ints) -> tuple[Ints, Ints]:
    """For runs of these lengths laid end to end: the run each item belongs to, and its place in the run."""
    owners = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    return owners, np.arange(len(owners)) - firsts[owners]


def scaled_integers(values: pa.BinaryArray, precision: int, scale: int) -> npt.NDArray[np.int64] | None:
    """Values times 10^scale as int64, precision at most 18; None when a value is special or does not fit exactly."""
    numerics = _take_apart(values)
    if np.any(numerics.special) or np.any(numerics.scales > scale):
        return None
    owners, ranks = _ranks(numerics.counts)
    exponents = 4 * (numerics.weights[owners] - ranks) + scale
    groups = numerics.groups[numerics.starts[owners] + ranks]
    if np.any((exponents > 18) | (exponents < -3)) or np.any(groups * 10.0**exponents > _LARGEST_PART):
        return None
    # Decimals beyond the scale are zero, so the division of the last group is exact.
    parts = np.where(
        exponents >= 0, groups * _POWERS[np.maximum(exponents, 0)], groups // _POWERS[np.maximum(-exponents, 0)]
    )
    sums = np.zeros(len(values), np.int64)
    np.add.at(sums, owners, parts)
    if np.any(sums >= _POWERS[precision]):
        return None
    return np.where(numerics.negative, -sums, sums)


def print_numeric(values: pa.BinaryArray) -> pa.StringArray:
    """Postgres's text. Each group becomes a cell of six characters (sign, four digits, point), of which some are
    kept.
    """
    numerics = _take_apart(values)
    whole = np.maximum(numerics.weights, 0) + 1
    cells = whole + (numerics.scales + 3) // 4
    owners, ranks = _ranks(cells)
    source = ranks - (whole - 1 - numerics.weights)[owners]
    present = (source >= 0) & (source < numerics.counts[owners])
    groups = np.zeros(len(owners), np.int64)
    groups[present] = numerics.groups[(numerics.starts[owners] + source)[present]]
    characters = np.empty((len(owners), 6), np.uint8)
    characters[:, 0], characters[:, 5] = ord("-"), ord(".")
    characters[:, 1:5] = groups[:, None] // np.array([1000, 100, 10, 1]) % 10 + ord("0")
    keep = _kept(numerics, groups, owners, ranks, whole)
    counts = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    offsets = counts[np.concatenate([[0], np.cumsum(cells)])]
    return _with_specials(numerics, strings(characters[keep], offsets))


def _kept(numerics: _Numerics, groups: Ints, owners: Ints, ranks: Ints, whole: Ints) -> Bools:
    scales = numerics.scales[owners]
    behind = ranks - whole[owners]
    keep = np.empty((len(owners), 6), np.bool_)
    keep[:, 0] = (ranks == 0) & numerics.negative[owners]
    places = np.arange(4)
    leading = (ranks == 0)[:, None] & (groups[:, None] < np.array([1000, 100, 10, 0]))
    keep[:, 1:5] = np.where((behind < 0)[:, None], ~leading, behind[:, None] * 4 + places < scales[:, None])
    keep[:, 5] = (behind == -1) & (scales > 0)
    return keep


def _with_specials(numerics: _Numerics, texts: pa.StringArray) -> pa.StringArray:
    if not np.any(numerics.special):
        return texts
    for sign, name in _SPECIAL.items():
        texts = choose(numerics.signs == sign, name, texts)
    return texts
