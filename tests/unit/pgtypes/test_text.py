"""Postgres's text, kept."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError, SourceUnsupported
from headrace.pgtypes.text import TextConversion, print_text

TEXTS = pa.array(["", "NULL", "\\N", 'a"b', "a\r\nb", "😀", None])


def test_text_is_handed_on_as_it_is() -> None:
    conversion = TextConversion("text")
    assert conversion.from_text(TEXTS).values is TEXTS
    assert conversion.from_binary(TEXTS.cast(pa.binary())).values.equals(TEXTS)
    assert conversion.arrow_type == pa.string()


def test_a_printer_sees_no_nulls() -> None:
    conversion = TextConversion("thing", _lengths)
    assert conversion.from_binary(pa.array([b"ab", None, b""])).values.to_pylist() == ["2", None, "0"]


def _lengths(values: pa.BinaryArray) -> pa.StringArray:
    assert values.null_count == 0
    return pa.array([str(len(value)) for value in values.to_pylist()], pa.string())


def test_a_type_only_the_server_can_print_says_so() -> None:
    conversion = TextConversion("tsvector", None)
    assert not conversion.supports_binary
    assert conversion.from_text(TEXTS).values is TEXTS
    with pytest.raises(SourceUnsupported, match="tsvector") as caught:
        conversion.from_binary(pa.array([b"\0"]))
    assert "binary" in caught.value.hint


def test_bytes_that_are_not_utf8_are_malformed() -> None:
    with pytest.raises(ProtocolError, match="text"):
        print_text(pa.array([b"\xff"]))


def test_conversions_travel() -> None:
    conversion = TextConversion("thing", _lengths)
    assert pickle.loads(pickle.dumps(conversion)) == conversion
