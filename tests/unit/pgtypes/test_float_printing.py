"""Floating-point numbers as Postgres prints them."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.pgtypes.float_printing import print_floats


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (100.0, "100"),
        (0.1, "0.1"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.25e-7, "1.25e-07"),
        (123456789012345.0, "123456789012345"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (1234567890123456.0, "1.234567890123456e+15"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (1e100, "1e+100"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_double_precision(number: float, text: str) -> None:
    assert print_floats(np.array([number]), 15).to_pylist() == [text]


def test_digits_half_way_to_the_next_number_are_not_used() -> None:
    # 6.678382624198022e+16 reads back as the same number, but only by rounding to even.
    assert print_floats(np.array([6.678382624198022e16, -6.678382624198022e16]), 15).to_pylist() == [
        "6.6783826241980224e+16",
        "-6.6783826241980224e+16",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [(999999.0, "999999"), (1e6, "1e+06"), (123456.7, "123456.7"), (0.1, "0.1"), (3.4028235e38, "3.4028235e+38")],
)
def test_real(number: float, text: str) -> None:
    assert print_floats(np.array([number], np.float32), 6).to_pylist() == [text]


def test_nothing() -> None:
    assert print_floats(np.empty(0), 15).to_pylist() == []
