"""The binary form of numeric."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.numeric_binary import print_numeric, scaled_integers


def _send(weight: int, sign: int, scale: int, *groups: int) -> bytes:
    words = [len(groups), weight & 0xFFFF, sign, scale, *groups]
    return b"".join(word.to_bytes(2, "big") for word in words)


VALUES = [
    (_send(0, 0, 0), "0"),
    (_send(0, 0, 3), "0.000"),
    (_send(0, 0, 0, 7), "7"),
    (_send(0, 0x4000, 2, 1, 5000), "-1.50"),
    (_send(1, 0, 0, 1), "10000"),
    (_send(1, 0, 0, 12, 34), "120034"),
    (_send(-1, 0, 4, 1), "0.0001"),
    (_send(-2, 0, 5, 1000), "0.00001"),
    (_send(-1, 0x4000, 1, 5000), "-0.5"),
    (_send(2, 0, 6, 1), "100000000.000000"),
    (_send(0, 0xC000, 0), "NaN"),
    (_send(0, 0xD000, 0), "Infinity"),
    (_send(0, 0xF000, 0), "-Infinity"),
]


def test_printing() -> None:
    texts = print_numeric(pa.array([value for value, _ in VALUES]))
    texts.validate(full=True)
    assert texts.to_pylist() == [text for _, text in VALUES]


def test_printing_nothing() -> None:
    assert print_numeric(pa.array([], pa.binary())).to_pylist() == []


def test_scaled_integers() -> None:
    values = pa.array([_send(0, 0x4000, 2, 1, 5000), _send(1, 0, 2, 12, 34), _send(0, 0, 2), _send(-1, 0, 2, 700)])
    numbers = scaled_integers(values, 18, 2)
    assert numbers is not None
    assert numbers.tolist() == [-150, 12_003_400, 0, 7]


@pytest.mark.parametrize(
    "value",
    [
        _send(0, 0xC000, 0),
        _send(0, 0, 3, 1, 1230),
        _send(5, 0, 0, 1),
        _send(4, 0, 0, 9999),
        _send(300, 0, 0, 1),
    ],
)
def test_what_does_not_fit_exactly_is_left_to_the_text(value: bytes) -> None:
    assert scaled_integers(pa.array([value]), 18, 2) is None


@pytest.mark.parametrize(
    "value", [b"", b"\0\0", b"\0" * 7, b"\0" * 9, _send(0, 0, 0, 1)[:-2], _send(0, 0, 0) + b"\0\0"]
)
def test_another_length_is_malformed(value: bytes) -> None:
    with pytest.raises(ProtocolError, match="numeric"):
        print_numeric(pa.array([value]))
