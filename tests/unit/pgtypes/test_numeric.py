"""numeric as decimal and as text."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.numeric import DecimalConversion, numeric_conversion
from headrace.pgtypes.text import TextConversion


def _typmod(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


@pytest.mark.parametrize(("precision", "scale"), [(10, 2), (1, 0), (38, 38), (38, 0), (5, 5)])
def test_what_arrow_has_a_decimal_for(precision: int, scale: int) -> None:
    assert numeric_conversion(_typmod(precision, scale), None) == DecimalConversion(precision, scale)


@pytest.mark.parametrize(("precision", "scale"), [(39, 0), (1000, 1000), (3, 5), (3, -2), (38, -1)])
def test_what_it_has_none_for_stays_text(precision: int, scale: int) -> None:
    conversion = numeric_conversion(_typmod(precision, scale), (38, 10))
    assert isinstance(conversion, TextConversion)


def test_without_precision_it_is_text_unless_configured() -> None:
    assert isinstance(numeric_conversion(-1, None), TextConversion)
    assert numeric_conversion(-1, (20, 5)) == DecimalConversion(20, 5)


def test_nan_and_infinities_are_rejected() -> None:
    texts = pa.array(["1.50", "NaN", None, "Infinity", "-Infinity", "-0.01"])
    converted = DecimalConversion(10, 2).from_text(texts)
    assert converted.values.to_pylist() == [Decimal("1.50"), None, None, None, None, Decimal("-0.01")]
    assert converted.rejected is not None
    assert converted.rejected.positions.to_pylist() == [1, 3, 4]
    assert converted.rejected.texts.to_pylist() == ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize("text", ["1.505", "100000000", "100000000.5000", "1" * 1000, "0.001"])
def test_a_configured_decimal_never_rounds_nor_overflows(text: str) -> None:
    converted = DecimalConversion(10, 2).from_text(pa.array([text]))
    assert converted.values.to_pylist() == [None]
    assert converted.rejected is not None
    assert converted.rejected.texts.to_pylist() == [text]


@pytest.mark.parametrize("text", ["1.5", "1.5000", "1." + "5" + "0" * 60, "0001.50"])
def test_trailing_zeros_are_no_reason_to_reject(text: str) -> None:
    converted = DecimalConversion(10, 2).from_text(pa.array([text, "NaN"]))
    assert converted.values.to_pylist() == [Decimal("1.50"), None]


def test_scale_zero() -> None:
    converted = DecimalConversion(3, 0).from_text(pa.array(["12.000", "999", "1000", "1.5"]))
    assert converted.values.to_pylist() == [Decimal(12), Decimal(999), None, None]


@pytest.mark.parametrize("text", ["", "one", "1e", "nan"])
def test_what_is_no_number_is_malformed(text: str) -> None:
    with pytest.raises(ProtocolError, match="numeric"):
        DecimalConversion(10, 2).from_text(pa.array([text]))
