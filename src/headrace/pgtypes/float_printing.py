"""How Postgres prints floating-point numbers.

Arrow and Postgres both print the fewest digits that read back as the same number. They differ in where the point goes,
and in one rule: Postgres does not use digits that lie exactly half-way to the next number, though they would be read
back by rounding to even.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .printing import choose, digits, join

__all__ = ["print_floats"]

_SPECIAL = {"0": "0", "-0": "-0", "nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_PARTS = r"^(?P<sign>-?)(?P<whole>\d*)\.?(?P<part>\d*)(?:e(?P<exponent>[-+]?\d+))?$"


def print_floats(numbers: npt.NDArray[np.floating[npt.NBitBase]], precision: int) -> pa.StringArray:
    """Postgres's text; from 10^`precision` on, and below 10^-4, it has an exponent."""
    raw = _shortest(numbers)
    parts = pc.extract_regex(raw, _PARTS)
    sign, whole, part, exponent = (parts.field(name) for name in ("sign", "whole", "part", "exponent"))
    both = join(whole, part)
    shown = pc.utf8_ltrim(both, "0")
    leading = pc.subtract(pc.utf8_length(both), pc.utf8_length(shown))
    power = pc.if_else(pc.equal(exponent, ""), "0", pc.utf8_ltrim(exponent, "+")).cast(pa.int32())
    # The decimal exponent of the first digit that is not zero.
    first = pc.subtract(pc.add(power, pc.utf8_length(whole)), pc.add(leading, 1)).fill_null(0)
    text = join(sign, _place_point(pc.utf8_rtrim(shown, "0"), first.to_numpy(), precision))
    for arrow, postgres in _SPECIAL.items():
        text = pc.if_else(pc.equal(raw, arrow), postgres, text)
    return text


def _place_point(shown: pa.StringArray, exponent: npt.NDArray[np.int32], precision: int) -> pa.StringArray:
    mantissa = pc.utf8_rtrim(join(pc.utf8_slice_codeunits(shown, 0, 1), ".", pc.utf8_slice_codeunits(shown, 1)), ".")
    text = join(mantissa, "e", choose(exponent < 0, "-", "+"), digits(np.abs(exponent), 2))
    for power in range(-4, precision):
        text = choose(exponent == power, _fixed(shown, power), text)
    return text


def _fixed(shown: pa.StringArray, power: int) -> pa.StringArray:
    if power < 0:
        return join("0." + "0" * (-power - 1), shown)
    padded = pc.utf8_rpad(shown, power + 1, "0")
    fraction = pc.utf8_slice_codeunits(padded, power + 1)
    return pc.utf8_rtrim(join(pc.utf8_slice_codeunits(padded, 0, power + 1), ".", fraction), ".")


def _shortest(numbers: npt.NDArray[np.floating[npt.NBitBase]]) -> pa.StringArray:
    """Arrow's text, with more digits where it lies half-way.

    That takes a number too large for its type to hold every integer, with an even mantissa, and is looked at one by
    one.
    """
    texts = pa.array(numbers).cast(pa.string())
    exact = 2.0 ** (np.finfo(numbers.dtype).nmant + 1)
    even = numbers.view(f"u{numbers.itemsize}") & 1 == 0
    places = np.flatnonzero(np.isfinite(numbers) & (np.abs(numbers) >= exact) & even)
    if not len(places):
        return texts
    mask = np.zeros(len(numbers), np.bool_)
    mask[places] = True
    mended = pa.array([_strictly_between(numbers[place], texts[place].as_py()) for place in places])
    return pc.replace_with_mask(texts, pa.array(mask), mended)


def _strictly_between(number: np.floating[npt.NBitBase], text: str) -> str:
    """The shortest text, from this one on, that is nearer to the number than half-way to its neighbours."""
    value = int(number)
    above, below = (np.nextafter(number, number.dtype.type(end)) for end in (math.inf, -math.inf))
    gaps = [abs(int(neighbour) - value) for neighbour in (above, below) if math.isfinite(neighbour)]
    count = len(text.partition("e")[0].replace(".", "").lstrip("-").rstrip("0"))
    while 2 * abs(int(Decimal(text)) - value) >= min(gaps):
        count += 1
        text = f"{float(number):.{count - 1}e}"
    return text
