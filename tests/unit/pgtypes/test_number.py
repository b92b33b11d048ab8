"""Integers, oid, real and double precision."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.number import NumberConversion

SMALL = NumberConversion("smallint", "int16")
PLAIN = NumberConversion("integer", "int32")
BIG = NumberConversion("bigint", "int64")
OID = NumberConversion("oid", "int64")
REAL = NumberConversion("real", "float32")
DOUBLE = NumberConversion("double precision", "float64")


@pytest.mark.parametrize(
    ("conversion", "numbers", "arrow_type"),
    [
        (SMALL, [-(2**15), 0, 2**15 - 1], pa.int16()),
        (PLAIN, [-(2**31), 0, 2**31 - 1], pa.int32()),
        (BIG, [-(2**63), 0, 2**63 - 1], pa.int64()),
        (OID, [0, 2**32 - 1], pa.int64()),
    ],
)
def test_ends_of_the_range(conversion: NumberConversion, numbers: list[int], arrow_type: pa.DataType) -> None:
    expected = pa.array([*numbers, None], arrow_type)
    assert conversion.arrow_type == arrow_type
    assert conversion.from_text(pa.array([*map(str, numbers), None])).values.equals(expected)


@pytest.mark.parametrize("text", ["", "x", "1.5", "2147483648"])
def test_what_is_no_integer_is_malformed(text: str) -> None:
    with pytest.raises(ProtocolError, match="integer"):
        PLAIN.from_text(pa.array([text]))


def test_special_values_are_values() -> None:
    values = DOUBLE.from_text(pa.array(["NaN", "Infinity", "-Infinity", "-0", None])).values
    assert str(values.to_pylist()) == "[nan, inf, -inf, -0.0, None]"


def test_real_is_read_with_its_own_precision() -> None:
    assert REAL.from_text(pa.array(["0.1"])).values.equals(pa.array([0.1], pa.float32()))


def test_what_is_no_number_is_malformed() -> None:
    with pytest.raises(ProtocolError, match="double precision"):
        DOUBLE.from_text(pa.array(["one"]))
