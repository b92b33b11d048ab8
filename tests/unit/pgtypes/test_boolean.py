"""boolean."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.boolean import BooleanConversion

CONVERSION = BooleanConversion()


def test_text_and_binary_agree() -> None:
    expected = pa.array([True, None, False])
    assert CONVERSION.from_text(pa.array(["t", None, "f"])).values.equals(expected)
    assert CONVERSION.from_binary(pa.array([b"\1", None, b"\0"])).values.equals(expected)
    assert CONVERSION.arrow_type == expected.type


def test_printing() -> None:
    assert CONVERSION.text_from_binary(pa.array([b"\1", None, b"\0"])).to_pylist() == ["t", None, "f"]


@pytest.mark.parametrize("text", ["", "T", "true", "1", "x"])
def test_other_texts_are_malformed(text: str) -> None:
    with pytest.raises(ProtocolError, match="boolean"):
        CONVERSION.from_text(pa.array(["t", text]))


def test_other_widths_are_malformed() -> None:
    with pytest.raises(ProtocolError, match="boolean"):
        CONVERSION.from_binary(pa.array([b"\0\0"]))
