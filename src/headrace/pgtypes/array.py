"""T[] -> list<T>, T mapped as anywhere else, NULL elements kept.

A list has one dimension and no bounds: arrays of several dimensions, and those whose bounds do not start at 1, are
rejected with their text. So is an array with an element that is itself rejected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .array_literal import read_literals
from .contract import Conversion, Converted, Rejected
from .layout import Bools, Ints
from .rejection import reject

__all__ = ["ArrayConversion"]


@dataclass(frozen=True, slots=True)
class ArrayConversion:
    element: Conversion
    delimiter: str = ","
    type_name: str = "array"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.list_(self.element.arrow_type)

    def from_text(self, texts: pa.StringArray) -> Converted:
        unlike_list = pc.or_(pc.starts_with(texts, "["), pc.starts_with(texts, "{{"))
        bad = unlike_list.fill_null(False).to_numpy(zero_copy_only=False)
        good = _valid(texts) & ~bad
        elements, offsets = read_literals(texts.filter(pa.array(good)), self.delimiter, self.type_name)
        values, bad = self._lists(self.element.from_text(elements), offsets, good, bad)
        return reject(values, bad, texts.filter(pa.array(bad)))

    def _lists(self, elements: Converted, offsets: Ints, good: Bools, bad: Bools) -> tuple[pa.ListArray, Bools]:
        """Lists for the good rows, NULL for the others; a good row with a rejected element joins the bad ones."""
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements.values)
        if good.all() and elements.rejected is None:
            return lists, bad
        spoilt = _rows_of(elements.rejected, offsets)
        remaining = good.copy()
        remaining[np.flatnonzero(good)[spoilt]] = False
        places = np.cumsum(good) - 1
        return lists.take(pa.array(places, mask=~remaining)), bad | (good & ~remaining)


def _valid(values: pa.Array) -> Bools:
    valid: Bools = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return valid


def _rows_of(rejected: Rejected | None, offsets: Ints) -> Ints:
    if rejected is None:
        return np.empty(0, np.int64)
    return np.unique(np.searchsorted(offsets, rejected.positions.to_numpy(), side="right") - 1)
