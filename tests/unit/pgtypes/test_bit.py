"""bit and varbit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.bit import print_bits


def _send(bits: str) -> bytes:
    padded = bits + "0" * (-len(bits) % 8)
    return len(bits).to_bytes(4, "big") + bytes(int(padded[i : i + 8], 2) for i in range(0, len(padded), 8))


def test_printing() -> None:
    texts = ["", "1", "0", "10101010", "101010101", "0" * 17, "1" * 64]
    assert print_bits(pa.array([_send(text) for text in texts])).to_pylist() == texts
    assert print_bits(pa.array([], pa.binary())).to_pylist() == []


@pytest.mark.parametrize("value", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\0\0", b"\xff\xff\xff\xff"])
def test_a_count_that_does_not_match_is_malformed(value: bytes) -> None:
    with pytest.raises(ProtocolError, match="bit"):
        print_bits(pa.array([value]))
