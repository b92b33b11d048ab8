"""Pieces of text, a column at a time."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.pgtypes.printing import choose, clock, digits, hexadecimal, join, kept


def test_digits_are_padded_but_never_cut() -> None:
    assert digits(np.array([0, 7, 123]), 2).to_pylist() == ["00", "07", "123"]


def test_joining_columns_and_constants() -> None:
    assert join("<", digits(np.array([1, 2])), ">").to_pylist() == ["<1>", "<2>"]


def test_choosing() -> None:
    assert choose(np.array([True, False]), "a", "b").to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "00:00:00"),
        (1, "00:00:00.000001"),
        (500_000, "00:00:00.5"),
        (86_400_000_000, "24:00:00"),
        (45_296_100_000, "12:34:56.1"),
        (360_000_000_000_000, "100000:00:00"),
    ],
)
def test_clock(microseconds: int, text: str) -> None:
    assert clock(np.array([microseconds])).to_pylist() == [text]


def test_hexadecimal_doubles_the_last_axis() -> None:
    assert hexadecimal(np.array([[0, 255], [16, 1]], np.uint8)).tobytes() == b"00ff1001"
    assert hexadecimal(np.empty((0, 4), np.uint8)).shape == (0, 8)


def test_kept_characters_of_each_row() -> None:
    characters = np.frombuffer(b"abcdef", np.uint8).reshape(2, 3)
    keep = np.array([[True, False, True], [False, False, False]])
    assert kept(characters, keep).to_pylist() == ["ac", ""]
