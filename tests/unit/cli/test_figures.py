"""Numbers for people."""

from __future__ import annotations

import pytest

from headrace.cli.figures import counted, duration, rate, size


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (99_999, "99,999"), (100_000, "100.0 k"), (999_960, "1.0 M"), (2_500_000, "2.5 M"), (3e15, "3000.0 T")],
)
def test_counted(number: float, text: str) -> None:
    assert counted(number) == text


@pytest.mark.parametrize(("number", "text"), [(0, "-"), (0.25, "0.2/s"), (12.6, "13/s"), (150_000, "150.0 k/s")])
def test_rate(number: float, text: str) -> None:
    assert rate(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 kB"), ((1 << 20) - 1, "1.0 MB"), (5 << 40, "5.0 TB")],
)
def test_size(number: int | None, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.0, "0.0 s"), (9.94, "9.9 s"), (75, "1:15"), (3661, "1:01:01")]
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
