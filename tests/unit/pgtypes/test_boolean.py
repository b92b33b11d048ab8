"""boolean."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.boolean import BooleanConversion

CONVERSION = BooleanConversion()


def test_values() -> None:
    expected = pa.array([True, None, False])
    assert CONVERSION.from_text(pa.array(["t", None, "f"])).values.equals(expected)
    assert CONVERSION.arrow_type == expected.type


@pytest.mark.parametrize("text", ["", "T", "true", "1", "x"])
def test_other_texts_are_malformed(text: str) -> None:
    with pytest.raises(ProtocolError, match="boolean"):
        CONVERSION.from_text(pa.array(["t", text]))
