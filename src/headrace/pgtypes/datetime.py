"""date, timestamp, timestamptz -> date32, timestamp[us], timestamp[us, UTC].

The session is in UTC with ISO dates. Arrow counts years 1 to 9999 as everyone after it does; infinity, BC and later
years are rejected with their text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .civil import DAY, EPOCH_DAYS, print_dates, print_timestamps
from .contract import Converted
from .layout import Bools, dense_apply, fixed_width
from .printing import choose
from .rejection import cast_or_reject, reject

__all__ = ["DateConversion", "TimestampConversion"]

_FIRST_DAY = -719_162
_LAST_DAY = 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""


def _unrepresentable(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.match_substring_regex(texts, r"^-?infinity$|^\d{5,}-| BC$")


@dataclass(frozen=True, slots=True)
class DateConversion:
    @property
    def arrow_type(self) -> pa.DataType:
        return pa.date32()

    @property
    def supports_binary(self) -> bool:
        return True

    def from_text(self, texts: pa.StringArray) -> Converted:
        return cast_or_reject(texts, self.arrow_type, "date", _unrepresentable)

    def from_binary(self, values: pa.BinaryArray) -> Converted:
        days = dense_apply(_days, values)
        bad = _outside(days, _FIRST_DAY, _LAST_DAY)
        if bad is None:
            return Converted(days.cast(pa.int32()).view(self.arrow_type))
        dates = pc.if_else(pa.array(bad), None, days).cast(pa.int32()).view(self.arrow_type)
        return reject(dates, bad, self.text_from_binary(values.filter(pa.array(bad))))

    def text_from_binary(self, values: pa.BinaryArray) -> pa.StringArray:
        return dense_apply(_print_dates, values)


def _days(values: pa.BinaryArray) -> pa.Int64Array:
    return pa.array(fixed_width(values, ">i4", "date").astype(np.int64) + EPOCH_DAYS)


def _print_dates(values: pa.BinaryArray) -> pa.StringArray:
    raw = fixed_width(values, ">i4", "date").astype(np.int32)
    finite = ~_infinite(raw)
    return _with_infinity(raw, print_dates(np.where(finite, raw.astype(np.int64) + EPOCH_DAYS, 0)))


@dataclass(frozen=True, slots=True)
class TimestampConversion:
    """`zoned` is timestamptz, which the session prints in UTC."""

    zoned: bool

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.timestamp("us", tz="UTC" if self.zoned else None)

    @property
    def supports_binary(self) -> bool:
        return True

    @property
    def _name(self) -> str:
        return "timestamptz" if self.zoned else "timestamp"

    def from_text(self, texts: pa.StringArray) -> Converted:
        return cast_or_reject(texts, self.arrow_type, self._name, _unrepresentable)

    def from_binary(self, values: pa.BinaryArray) -> Converted:
        moments = dense_apply(self._raw, values)
        bad = _outside(moments, (_FIRST_DAY - EPOCH_DAYS) * DAY, (_LAST_DAY - EPOCH_DAYS + 1) * DAY - 1)
        if bad is not None:
            moments = pc.if_else(pa.array(bad), None, moments)
        stamps = pc.add(moments, EPOCH_DAYS * DAY).view(self.arrow_type)
        return Converted(stamps) if bad is None else reject(stamps, bad, self._texts_where(values, bad))

    def text_from_binary(self, values: pa.BinaryArray) -> pa.StringArray:
        return dense_apply(self._print, values)

    def _texts_where(self, values: pa.BinaryArray, bad: Bools) -> pa.StringArray:
        return self.text_from_binary(values.filter(pa.array(bad)))

    def _raw(self, values: pa.BinaryArray) -> pa.Int64Array:
        return pa.array(fixed_width(values, ">i8", self._name).astype(np.int64))

    def _print(self, values: pa.BinaryArray) -> pa.StringArray:
        raw = fixed_width(values, ">i8", self._name).astype(np.int64)
        days, microseconds = np.divmod(np.where(_infinite(raw), 0, raw), DAY)
        return _with_infinity(raw, print_timestamps(days + EPOCH_DAYS, microseconds, "+00" if self.zoned else ""))


def _outside(numbers: pa.Int64Array, lowest: int, highest: int) -> Bools | None:
    """Where values are out of range, or None when none is (the usual case, seen in one pass)."""
    extent = pc.min_max(numbers).as_py()
    if extent["min"] is None or (extent["min"] >= lowest and extent["max"] <= highest):
        return None
    bad = pc.or_(pc.less(numbers, lowest), pc.greater(numbers, highest)).fill_null(False)
    result: Bools = bad.to_numpy(zero_copy_only=False)
    return result


def _infinite(raw: npt.NDArray[Any]) -> Bools:
    """Postgres's infinities are the ends of the integer's range."""
    limits = np.iinfo(raw.dtype)
    return np.asarray((raw == limits.max) | (raw == limits.min))


def _with_infinity(raw: npt.NDArray[Any], texts: pa.StringArray) -> pa.StringArray:
    limits = np.iinfo(raw.dtype)
    return choose(raw == limits.max, "infinity", choose(raw == limits.min, "-infinity", texts))
