"""date, timestamp, timestamptz -> date32, timestamp[us], timestamp[us, UTC].

The session is in UTC with ISO dates. Arrow counts years 1 to 9999 as everyone after it does; infinity, BC and later
years are rejected with their text.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from .contract import Converted
from .rejection import cast_or_reject

__all__ = ["DateConversion", "TimestampConversion"]


def _unrepresentable(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.match_substring_regex(texts, r"^-?infinity$|^\d{5,}-| BC$")


@dataclass(frozen=True, slots=True)
class DateConversion:
    @property
    def arrow_type(self) -> pa.DataType:
        return pa.date32()

    def from_text(self, texts: pa.StringArray) -> Converted:
        return cast_or_reject(texts, self.arrow_type, "date", _unrepresentable)


@dataclass(frozen=True, slots=True)
class TimestampConversion:
    """`zoned` is timestamptz, which the session prints in UTC."""

    zoned: bool

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.timestamp("us", tz="UTC" if self.zoned else None)

    @property
    def _name(self) -> str:
        return "timestamptz" if self.zoned else "timestamp"

    def from_text(self, texts: pa.StringArray) -> Converted:
        return cast_or_reject(texts, self.arrow_type, self._name, _unrepresentable)
