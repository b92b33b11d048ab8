"""Integers and oid."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.integer import IntegerConversion

SMALL = IntegerConversion("smallint", ">i2", "int16")
PLAIN = IntegerConversion("integer", ">i4", "int32")
BIG = IntegerConversion("bigint", ">i8", "int64")
OID = IntegerConversion("oid", ">u4", "int64")


@pytest.mark.parametrize(
    ("conversion", "form", "numbers", "arrow_type"),
    [
        (SMALL, ">h", [-(2**15), 0, 2**15 - 1], pa.int16()),
        (PLAIN, ">i", [-(2**31), 0, 2**31 - 1], pa.int32()),
        (BIG, ">q", [-(2**63), 0, 2**63 - 1], pa.int64()),
        (OID, ">I", [0, 2**32 - 1], pa.int64()),
    ],
)
def test_ends_of_the_range(
    conversion: IntegerConversion, form: str, numbers: list[int], arrow_type: pa.DataType
) -> None:
    expected = pa.array([*numbers, None], arrow_type)
    binary = pa.array([*(struct.pack(form, number) for number in numbers), None])
    texts = pa.array([*map(str, numbers), None])
    assert conversion.arrow_type == arrow_type
    assert conversion.from_text(texts).values.equals(expected)
    assert conversion.from_binary(binary).values.equals(expected)
    assert conversion.text_from_binary(binary).equals(texts)


@pytest.mark.parametrize("text", ["", "x", "1.5", "2147483648"])
def test_what_is_no_integer_is_malformed(text: str) -> None:
    with pytest.raises(ProtocolError, match="integer"):
        PLAIN.from_text(pa.array([text]))
