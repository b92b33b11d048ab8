"""hstore -> map<string, string>, in the order Postgres prints it (by the keys' length, then by their bytes)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .contract import Converted
from .layout import Ints, dense_apply, malformed, scan, strings
from .literal import read_quoting

__all__ = ["HstoreConversion"]


@dataclass(frozen=True, slots=True)
class HstoreConversion:
    @property
    def arrow_type(self) -> pa.DataType:
        return pa.map_(pa.string(), pa.string())

    def from_text(self, texts: pa.StringArray) -> Converted:
        return Converted(dense_apply(lambda dense: _maps(*_read_literals(dense)), texts))


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


def _maps(tokens: pa.StringArray, offsets: Ints) -> pa.MapArray:
    keys, items = _pairs(tokens, offsets)
    return pa.MapArray.from_arrays(pa.array(offsets // 2, pa.int32()), keys, items)


def _pairs(tokens: pa.StringArray, offsets: Ints) -> tuple[pa.StringArray, pa.StringArray]:
    keys = tokens.take(pa.array(np.arange(0, len(tokens), 2)))
    if np.any(offsets % 2) or keys.null_count:
        raise malformed("hstore")
    return keys, tokens.take(pa.array(np.arange(1, len(tokens), 2)))
