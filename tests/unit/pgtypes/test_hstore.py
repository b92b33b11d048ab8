"""hstore."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.hstore import HstoreConversion

CONVERSION = HstoreConversion()


def _field(text: str | None) -> bytes:
    return b"\xff" * 4 if text is None else struct.pack(">i", len(text.encode())) + text.encode()


def _send(pairs: list[tuple[str, str | None]]) -> bytes:
    return struct.pack(">i", len(pairs)) + b"".join(_field(key) + _field(value) for key, value in pairs)


PAIRS: list[list[tuple[str, str | None]] | None] = [
    [("a", "1"), ("b", None)],
    None,
    [],
    [("", "")],
    [("a=>b", 'c, "d"'), ("\\", "NULL")],
    [("N", "N")],
    [("é", "😀\n")],
]
LITERALS = pa.array([
    '"a"=>"1", "b"=>NULL', None, "", '""=>""', '"a=>b"=>"c, \\"d\\"", "\\\\"=>"NULL"', '"N"=>"N"', '"é"=>"😀\n"',
])  # fmt: skip
BINARIES = pa.array([None if pairs is None else _send(pairs) for pairs in PAIRS])


def test_both_forms() -> None:
    for converted in (CONVERSION.from_text(LITERALS), CONVERSION.from_binary(BINARIES)):
        converted.values.validate(full=True)
        assert converted.values.type == CONVERSION.arrow_type
        assert converted.values.to_pylist() == PAIRS
        assert converted.rejected is None
    assert CONVERSION.text_from_binary(BINARIES).equals(LITERALS)


@pytest.mark.parametrize("text", ['"a"', 'NULL=>"a"', '"a"=>"b", "c"', '"a=>b'])
def test_what_is_no_pair_is_malformed(text: str) -> None:
    with pytest.raises(ProtocolError, match="hstore"):
        CONVERSION.from_text(pa.array([text]))


@pytest.mark.parametrize(
    "value", [b"", b"\0\0\0\1", b"\0\0\0\0\0", b"\xff" * 4, struct.pack(">i", 1) + _field(None) + _field("a")]
)
def test_what_does_not_add_up_is_malformed(value: bytes) -> None:
    with pytest.raises(ProtocolError, match="hstore"):
        CONVERSION.from_binary(pa.array([value]))
