"""The proleptic Gregorian calendar over Postgres's whole range, 4713 BC to 294276 AD, and how ISO dates are printed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .layout import Ints
from .printing import choose, clock, digits, join

__all__ = ["DAY", "EPOCH_DAYS", "print_dates", "print_timestamps"]

DAY = 86_400_000_000
"""Microseconds of a day."""

EPOCH_DAYS = 10_957
"""Days from 1970-01-01, where Arrow counts from, to 2000-01-01, where Postgres does."""


def print_dates(days: npt.NDArray[np.int64]) -> pa.StringArray:
    """Days since 1970 as `YYYY-MM-DD`, with ` BC` behind where it applies."""
    date, era = _date_and_era(days)
    return join(date, era)


def print_timestamps(days: Ints, microseconds: Ints, zone: str) -> pa.StringArray:
    """Days since 1970 and the time of day as ISO text; the era comes last, behind the zone."""
    date, era = _date_and_era(days)
    return join(date, " ", clock(microseconds), zone, era)


def _date_and_era(days: Ints) -> tuple[pa.StringArray, pa.StringArray]:
    year, month, day = _civil(days)
    before = year < 1
    date = join(digits(np.where(before, 1 - year, year), 4), "-", digits(month, 2), "-", digits(day, 2))
    return date, choose(before, " BC", "")


def _civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """Year (0 is 1 BC), month and day. Years are counted from 1 March, so that a leap day is a year's last."""
    era, day_of_era = np.divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = np.where(month_from_march < 10, month_from_march + 3, month_from_march - 9)
    return year_of_era + era * 400 + (month <= 2), month, day
