"""hstore -> map<string, string>, in the order Postgres prints it (by the keys' length, then by their bytes)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .contract import Converted
from .fields import fields, int32_at
from .layout import Ints, dense_apply, malformed, scan, strings
from .literal import escape, read_quoting
from .printing import join
from .text import print_text

__all__ = ["HstoreConversion"]


@dataclass(frozen=True, slots=True)
class HstoreConversion:
    @property
    def arrow_type(self) -> pa.DataType:
        return pa.map_(pa.string(), pa.string())

    @property
    def supports_binary(self) -> bool:
        return True

    def from_text(self, texts: pa.StringArray) -> Converted:
        return Converted(dense_apply(lambda dense: _maps(*_read_literals(dense)), texts))

    def from_binary(self, values: pa.BinaryArray) -> Converted:
        return Converted(dense_apply(lambda dense: _maps(*_read_binary(dense)), values))

    def text_from_binary(self, values: pa.BinaryArray) -> pa.StringArray:
        return dense_apply(lambda dense: _print(*_read_binary(dense)), values)


def _read_literals(texts: pa.StringArray) -> tuple[pa.StringArray, Ints]:
    """Keys and values by turns, and the offsets of the hstores in them. Outside quotes only NULL has an N."""
    data, offsets = scan(texts)
    quoting = read_quoting(data, offsets[1:], "hstore")
    token = (quoting.quotes & quoting.inside) | (~quoting.inside & (data == ord("N")))
    starts = np.flatnonzero(token)
    keep = quoting.inside & ~quoting.quotes
    keep[quoting.escapes] = False
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    bounds = np.append(kept_before[starts], kept_before[-1])
    return strings(data[keep], bounds, data[starts] == ord('"')), np.searchsorted(starts, offsets)


def _read_binary(values: pa.BinaryArray) -> tuple[pa.StringArray, Ints]:
    """A count of pairs, then keys and values by turns, as fields."""
    data, offsets = scan(values)
    if np.any(np.diff(offsets) < 4):
        raise malformed("hstore")
    counts = 2 * int32_at(data, offsets[:-1])
    tokens = fields(data, offsets[:-1] + 4, offsets[1:], counts, "hstore")
    return print_text(tokens), np.concatenate([[0], np.cumsum(counts)])


def _maps(tokens: pa.StringArray, offsets: Ints) -> pa.MapArray:
    keys, items = _pairs(tokens, offsets)
    return pa.MapArray.from_arrays(pa.array(offsets // 2, pa.int32()), keys, items)


def _pairs(tokens: pa.StringArray, offsets: Ints) -> tuple[pa.StringArray, pa.StringArray]:
    keys = tokens.take(pa.array(np.arange(0, len(tokens), 2)))
    if np.any(offsets % 2) or keys.null_count:
        raise malformed("hstore")
    return keys, tokens.take(pa.array(np.arange(1, len(tokens), 2)))


def _print(tokens: pa.StringArray, offsets: Ints) -> pa.StringArray:
    keys, items = _pairs(tokens, offsets)
    value = pc.coalesce(join('"', escape(items), '"'), "NULL")
    pairs = join('"', escape(keys), '"=>', value)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets // 2, pa.int32()), pairs), ", ")
