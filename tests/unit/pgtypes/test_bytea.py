"""bytea."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.bytea import ByteaConversion

CONVERSION = ByteaConversion()
EVERY_BYTE = bytes(range(256))
VALUES = pa.array([b"", None, b"\0", EVERY_BYTE, b"\xde\xad", b"x"])
TEXTS = pa.array(["\\x", None, "\\x00", "\\x" + EVERY_BYTE.hex(), "\\xdead", "\\x78"])


def test_every_byte() -> None:
    assert CONVERSION.from_text(TEXTS).values.equals(VALUES)


def test_a_slice_at_an_odd_place() -> None:
    texts = pa.array(["abc", "\\x01", "\\xff"]).slice(1)
    assert CONVERSION.from_text(texts).values.to_pylist() == [b"\x01", b"\xff"]


@pytest.mark.parametrize("text", ["", "\\", "\\x0", "00", "\\x0g", "\\xAB", "\\x\\x", "abc\\000"])
def test_other_texts_are_malformed(text: str) -> None:
    with pytest.raises(ProtocolError, match="bytea"):
        CONVERSION.from_text(pa.array(["\\x01", text, "\\x02"]))


def test_two_odd_texts_do_not_make_an_even_one() -> None:
    with pytest.raises(ProtocolError, match="bytea"):
        CONVERSION.from_text(pa.array(["\\x0", "0\\x"]))
