"""time, timetz, interval: kept as Postgres prints them (`24:00:00` and a zone have no Arrow type)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .layout import Bools, Ints, fixed_width
from .printing import choose, clock, digits, join

__all__ = ["print_interval", "print_time", "print_timetz"]


def print_time(values: pa.BinaryArray) -> pa.StringArray:
    return clock(fixed_width(values, ">i8", "time").astype(np.int64))


def print_timetz(values: pa.BinaryArray) -> pa.StringArray:
    """The zone is sent in seconds west of Greenwich and printed as hours east, finer only where needed."""
    parts = fixed_width(values, [("time", ">i8"), ("west", ">i4")], "timetz")
    west = parts["west"].astype(np.int64)
    minutes, second = np.divmod(np.abs(west), 60)
    hour, minute = np.divmod(minutes, 60)
    finer = choose(
        second != 0,
        join(":", digits(minute, 2), ":", digits(second, 2)),
        choose(minute != 0, join(":", digits(minute, 2)), ""),
    )
    return join(clock(parts["time"].astype(np.int64)), choose(west <= 0, "+", "-"), digits(hour, 2), finer)


def print_interval(values: pa.BinaryArray) -> pa.StringArray:
    """`intervalstyle = postgres`: a field that follows a negative one shows its sign even when positive."""
    parts = fixed_width(values, [("time", ">i8"), ("days", ">i4"), ("months", ">i4")], "interval")
    months, days, time = (parts[name].astype(np.int64) for name in ("months", "days", "time"))
    years = np.sign(months) * (np.abs(months) // 12)
    text, empty, after_negative = _append(
        years, "year", None, np.ones(len(months), np.bool_), np.zeros(len(months), np.bool_)
    )
    text, empty, after_negative = _append(months - 12 * years, "mon", text, empty, after_negative)
    text, empty, after_negative = _append(days, "day", text, empty, after_negative)
    sign = choose(time < 0, "-", choose(after_negative, "+", ""))
    # The lowest int64 has no positive counterpart; it only occurs in '-infinity'.
    clocked = join(choose(empty, "", " "), sign, clock(np.abs(np.maximum(time, -np.iinfo(np.int64).max))))
    return _with_infinity(months, days, time, join(text, choose(empty | (time != 0), clocked, "")))


def _append(
    numbers: Ints, unit: str, before: pa.StringArray | None, empty: Bools, after_negative: Bools
) -> tuple[pa.StringArray, Bools, Bools]:
    """Add a field where it is not zero; say where the text still is empty, and where the last field was negative."""
    zero = numbers == 0
    number = pa.array(numbers).cast(pa.string())
    plus = choose(after_negative & (numbers > 0), "+", "")
    field = join(choose(empty, "", " "), plus, number, choose(numbers == 1, f" {unit}", f" {unit}s"))
    shown = choose(zero, "", field)
    return (
        shown if before is None else join(before, shown),
        empty & zero,
        np.where(zero, after_negative, numbers < 0),
    )


def _with_infinity(months: Ints, days: Ints, time: Ints, texts: pa.StringArray) -> pa.StringArray:
    """Postgres 17 and later: infinite when all three fields are at the end of their range."""
    field, clock_field = np.iinfo(np.int32), np.iinfo(np.int64)
    infinite = (months == field.max) & (days == field.max) & (time == clock_field.max)
    minus_infinite = (months == field.min) & (days == field.min) & (time == clock_field.min)
    return choose(infinite, "infinity", choose(minus_infinite, "-infinity", texts))
