"""lsn: Postgres's text form and back, order, limits."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.lsn import INVALID_LSN, Lsn


@pytest.mark.parametrize(
    ("text", "value"),
    [("0/0", 0), ("16/B374D848", 0x16_B374D848), ("FFFFFFFF/FFFFFFFF", (1 << 64) - 1), ("1/0", 1 << 32), ("0/A", 10)],
)
def test_text_and_value(text: str, value: int) -> None:
    assert Lsn.parse(text) == value
    assert str(Lsn(value)) == text
    assert repr(Lsn(value)) == f"Lsn('{text}')"


@given(st.integers(0, (1 << 64) - 1))
def test_round_trip(value: int) -> None:
    assert Lsn.parse(str(Lsn(value))) == value
    assert pickle.loads(pickle.dumps(Lsn(value))) == Lsn(value)


@pytest.mark.parametrize("text", ["", "0", "/", "0/", "/0", "G/0", "0/0/0", "123456789/0", "-1/0", "0x1/0", "1 /0"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        Lsn.parse(text)


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_limits(value: int) -> None:
    with pytest.raises(ValueError, match="unsigned 64-bit"):
        Lsn(value)


def test_it_orders_as_the_number_it_is_and_not_as_text() -> None:
    assert sorted([Lsn.parse("10/0"), Lsn.parse("9/0")]) == [Lsn.parse("9/0"), Lsn.parse("10/0")]
    assert INVALID_LSN == 0
    assert not INVALID_LSN


def test_format_is_text_unless_a_number_is_asked_for() -> None:
    lsn = Lsn.parse("1/A")
    assert (f"{lsn}", f"{lsn:>6s}", f"{lsn:d}", f"{lsn:016X}") == ("1/A", "   1/A", "4294967306", "000000010000000A")
