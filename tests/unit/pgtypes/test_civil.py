"""The calendar, checked against Python's."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest

from headrace.pgtypes.civil import print_dates, print_timestamps


def test_days_throughout_pythons_calendar() -> None:
    first = (date.min - date(1970, 1, 1)).days
    days = np.arange(first, (date.max - date(1970, 1, 1)).days, 97)
    expected = [(date(1970, 1, 1) + timedelta(days=int(day))).isoformat() for day in days]
    assert print_dates(days).to_pylist() == expected


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (-719_163, "0001-12-31 BC"),
        (-719_162, "0001-01-01"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "10000-01-01"),
        (-2_440_550, "4713-01-01 BC"),
        (-735_160, "0044-03-15 BC"),
        (2_145_042_905, "5874897-12-31"),
    ],
)
def test_beyond_pythons_calendar(day: int, text: str) -> None:
    assert print_dates(np.array([day])).to_pylist() == [text]


def test_the_era_comes_behind_the_zone() -> None:
    text = print_timestamps(np.array([-735_160, 0]), np.array([1, 0]), "+00").to_pylist()
    assert text == ["0044-03-15 00:00:00.000001+00 BC", "1970-01-01 00:00:00+00"]
