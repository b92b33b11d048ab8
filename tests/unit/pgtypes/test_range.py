"""Ranges and multiranges."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.integer import IntegerConversion
from headrace.pgtypes.range import MultirangePrinter, RangePrinter
from headrace.pgtypes.text import TextConversion

INTEGERS = RangePrinter(IntegerConversion("integer", ">i4", "int32"))
TEXTS = RangePrinter(TextConversion("text"))


def _field(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def _integers(flags: int, *bounds: int) -> bytes:
    return bytes([flags]) + b"".join(_field(struct.pack(">i", bound)) for bound in bounds)


RANGES = [
    (_integers(1), "empty"),
    (_integers(2, 1, 5), "[1,5)"),
    (_integers(6, 1, 5), "[1,5]"),
    (_integers(4, -1, 5), "(-1,5]"),
    (_integers(8, 5), "(,5)"),
    (_integers(2 | 16, 5), "[5,)"),
    (_integers(8 | 16), "(,)"),
]


def test_ranges() -> None:
    assert INTEGERS(pa.array([value for value, _ in RANGES])).to_pylist() == [text for _, text in RANGES]


@pytest.mark.parametrize(
    ("bound", "text"), [("a", "a"), ("", '""'), ("a b", '"a b"'), ("a,b", '"a,b"'), ('"', '""""'), ("\\", '"\\\\"')]
)
def test_bounds_are_quoted_where_needed(bound: str, text: str) -> None:
    value = bytes([2 | 16]) + _field(bound.encode())
    assert TEXTS(pa.array([value])).to_pylist() == [f"[{text},)"]


def test_multiranges() -> None:
    several = struct.pack(">i", 2) + _field(_integers(2, 1, 5)) + _field(_integers(2 | 16, 9))
    values = pa.array([struct.pack(">i", 0), several])
    assert MultirangePrinter(INTEGERS)(values).to_pylist() == ["{}", "{[1,5),[9,)}"]


@pytest.mark.parametrize("value", [b"", _integers(2, 1), _integers(1, 1), _integers(2, 1, 2, 3)])
def test_what_does_not_add_up_is_malformed(value: bytes) -> None:
    with pytest.raises(ProtocolError, match="range"):
        INTEGERS(pa.array([value]))
    with pytest.raises(ProtocolError, match="range"):
        MultirangePrinter(INTEGERS)(pa.array([value]))
