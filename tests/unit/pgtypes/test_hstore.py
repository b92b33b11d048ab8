"""hstore."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.hstore import HstoreConversion

CONVERSION = HstoreConversion()


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


def test_literals() -> None:
    converted = CONVERSION.from_text(LITERALS)
    converted.values.validate(full=True)
    assert converted.values.type == CONVERSION.arrow_type
    assert converted.values.to_pylist() == PAIRS
    assert converted.rejected is None


@pytest.mark.parametrize("text", ['"a"', 'NULL=>"a"', '"a"=>"b", "c"', '"a=>b'])
def test_what_is_no_pair_is_malformed(text: str) -> None:
    with pytest.raises(ProtocolError, match="hstore"):
        CONVERSION.from_text(pa.array([text]))
