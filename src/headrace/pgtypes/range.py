"""Ranges and multiranges: kept as Postgres prints them.

A range is sent as a byte of flags and its finite bounds as fields; a multirange as a count and its ranges as fields.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .contract import Conversion
from .fields import fields, int32_at
from .layout import Bools, Ints, malformed, scan
from .printing import choose, join

__all__ = ["MultirangePrinter", "RangePrinter"]

_EMPTY, _LOWER_INCLUSIVE, _UPPER_INCLUSIVE, _LOWER_INFINITE, _UPPER_INFINITE = 1, 2, 4, 8, 16


@dataclass(frozen=True, slots=True)
class RangePrinter:
    """Prints a range whose bounds are of the given type."""

    bound: Conversion

    def __call__(self, values: pa.BinaryArray) -> pa.StringArray:
        data, offsets = scan(values)
        if np.any(np.diff(offsets) < 1):
            raise malformed("range")
        flags = data[offsets[:-1]]
        lower = flags & (_EMPTY | _LOWER_INFINITE) == 0
        upper = flags & (_EMPTY | _UPPER_INFINITE) == 0
        counts = lower.astype(np.int64) + upper
        bounds = _quoted(self.bound.text_from_binary(fields(data, offsets[:-1] + 1, offsets[1:], counts, "range")))
        firsts = np.cumsum(counts) - counts
        text = join(
            choose(flags & _LOWER_INCLUSIVE != 0, "[", "("), _where(lower, bounds, firsts),
            ",", _where(upper, bounds, firsts + lower), choose(flags & _UPPER_INCLUSIVE != 0, "]", ")"),
        )  # fmt: skip
        return choose(flags & _EMPTY != 0, "empty", text)


@dataclass(frozen=True, slots=True)
class MultirangePrinter:
    """Prints a multirange of the given range."""

    range: RangePrinter

    def __call__(self, values: pa.BinaryArray) -> pa.StringArray:
        data, offsets = scan(values)
        if np.any(np.diff(offsets) < 4):
            raise malformed("multirange")
        counts = int32_at(data, offsets[:-1])
        texts = self.range(fields(data, offsets[:-1] + 4, offsets[1:], counts, "multirange"))
        bounds = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        return join("{", pc.binary_join(pa.ListArray.from_arrays(bounds, texts), ","), "}")


def _where(present: Bools, texts: pa.StringArray, places: Ints) -> pa.StringArray:
    """The text at each place, empty where it is not present."""
    return texts.take(pa.array(places, mask=~present)).fill_null("")


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    needs = pc.match_substring_regex(texts, r'^$|["\\()\[\],\x09-\x0d ]')
    return pc.if_else(needs, join('"', pc.replace_substring_regex(texts, r'(["\\])', r"\1\1"), '"'), texts)
