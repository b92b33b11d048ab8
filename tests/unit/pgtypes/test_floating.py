"""real and double precision."""

from __future__ import annotations

import math
import struct

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.floating import FloatConversion

REAL = FloatConversion("real", ">f4", "float32", 6)
DOUBLE = FloatConversion("double precision", ">f8", "float64", 15)


def test_special_values_are_values() -> None:
    texts = pa.array(["NaN", "Infinity", "-Infinity", "-0", None])
    binary = pa.array([*(struct.pack(">d", x) for x in (math.nan, math.inf, -math.inf, -0.0)), None])
    for values in (DOUBLE.from_text(texts).values, DOUBLE.from_binary(binary).values):
        assert str(values.to_pylist()) == "[nan, inf, -inf, -0.0, None]"
    assert DOUBLE.text_from_binary(binary).equals(texts)


def test_all_nans_are_one() -> None:
    odd = pa.array([bytes.fromhex("fff8000000000000"), bytes.fromhex("7ff8000000000001")])
    plain = DOUBLE.from_text(pa.array(["NaN", "NaN"])).values
    assert DOUBLE.from_binary(odd).values.buffers()[1].to_pybytes() == plain.buffers()[1].to_pybytes()


def test_real_is_read_with_its_own_precision() -> None:
    assert REAL.from_text(pa.array(["0.1"])).values.equals(pa.array([0.1], pa.float32()))
    assert REAL.from_binary(pa.array([struct.pack(">f", 0.1)])).values.equals(pa.array([0.1], pa.float32()))
    assert REAL.text_from_binary(pa.array([struct.pack(">f", 0.1)])).to_pylist() == ["0.1"]


def test_what_is_no_number_is_malformed() -> None:
    with pytest.raises(ProtocolError, match="double precision"):
        DOUBLE.from_text(pa.array(["one"]))
