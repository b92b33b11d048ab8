"""Matching the key columns of many rows against the keys sought. Three ways, by the key's columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..fold.codes import combined_codes, key_column_codes
from .bounds import is_whole_number, whole_numbers

__all__ = ["KeyMatcher"]

_Indexes = npt.NDArray[np.int64]
# A packed key stays below it.
_PACKED_LIMIT = 1 << 62


class KeyMatcher:
    """Finds rows whose key is among those given, which are distinct. NULL is never a key."""

    def __init__(self, needles: pa.Table) -> None:
        self._needles = [_one_zero(column) for column in needles.columns]
        self._nested = any(pa.types.is_nested(column.type) for column in self._needles)
        self._packing = _Packing.of(self._needles) if len(self._needles) > 1 else None
        self._packed = None if self._packing is None else pa.array(self._packing.pack(self._needles)[0])

    def match(self, columns: Sequence[pa.ChunkedArray]) -> tuple[_Indexes, _Indexes]:
        """The rows that match, ascending, and for each the index of its key."""
        columns = [_one_zero(column) for column in columns]
        if self._nested:
            return self._by_codes(columns)
        if len(columns) == 1:
            return _indexes_in(columns[0], self._needles[0].combine_chunks())
        if self._packing is not None and not any(column.null_count for column in columns):
            packed, within = self._packing.pack(columns)
            rows = np.flatnonzero(within)
            at, needles = _indexes_in(pa.chunked_array([pa.array(packed[rows])]), self._packed)
            return rows[at], needles
        return self._by_codes(columns)

    def _by_codes(self, columns: Sequence[pa.ChunkedArray]) -> tuple[_Indexes, _Indexes]:
        """Leave out rows column by column, the most telling first; compare what is left exactly."""
        rows = np.arange(len(columns[0]))
        # Arrow has no hash tables of lists and maps: these are left to the codes.
        plain = [index for index, needles in enumerate(self._needles) if not pa.types.is_nested(needles.type)]
        distinct = [-pc.count_distinct(self._needles[index]).as_py() for index in plain]
        for index in np.array(plain, dtype=np.int64)[np.argsort(distinct, kind="stable")].tolist():
            column = columns[index] if len(rows) == len(columns[0]) else columns[index].take(pa.array(rows))
            rows = rows[pc.is_in(column, self._needles[index].combine_chunks(), skip_nulls=True).to_numpy()]
        for index, column in enumerate(columns):
            if index not in plain and column.null_count:
                rows = rows[column.is_valid().to_numpy()[rows]]
        if not len(rows):
            return rows, rows
        count = len(self._needles[0])
        codes = combined_codes(
            [
                key_column_codes(pa.chunked_array([*needles.chunks, *column.take(pa.array(rows)).chunks]))
                for needles, column in zip(self._needles, columns, strict=True)
            ]
        )
        at, needles = _indexes_in(pa.chunked_array([pa.array(codes[count:])]), pa.array(codes[:count]))
        return rows[at], needles


class _Packing:
    """Several whole numbers in one, for keys whose ranges are small enough: TPC-C's, and most others."""

    def __init__(self, lows: list[int], sizes: list[int]) -> None:
        self._lows = lows
        self._sizes = sizes

    @staticmethod
    def of(columns: Sequence[pa.ChunkedArray]) -> _Packing | None:
        if not all(is_whole_number(column.type) and not column.null_count for column in columns):
            return None
        numbers = [whole_numbers(column) for column in columns]
        lows = [int(column.min()) for column in numbers]
        sizes = [int(column.max()) - low + 1 for column, low in zip(numbers, lows, strict=True)]
        product = 1
        for size in sizes:
            product *= size
        return _Packing(lows, sizes) if product < _PACKED_LIMIT else None

    def pack(self, columns: Sequence[pa.ChunkedArray]) -> tuple[_Indexes, npt.NDArray[np.bool_]]:
        """The packed numbers, and where they mean something: all columns are within their ranges."""
        packed = np.zeros(len(columns[0]), dtype=np.uint64)
        within = np.ones(len(columns[0]), dtype=bool)
        for column, low, size in zip(columns, self._lows, self._sizes, strict=True):
            # Unsigned, so that one comparison tells both sides, and what is below wraps round without harm.
            above = whole_numbers(column).view(np.uint64) - np.uint64(low % (1 << 64))
            within &= above < np.uint64(size)
            packed *= np.uint64(size)
            packed += above
        return packed.view(np.int64), within


def _one_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """0.0 and -0.0 are one key."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _indexes_in(column: pa.ChunkedArray, values: pa.Array) -> tuple[_Indexes, _Indexes]:
    found = pc.index_in(column, values, skip_nulls=True)
    rows = np.flatnonzero(found.is_valid().to_numpy())
    return rows, found.drop_null().to_numpy().astype(np.int64)
