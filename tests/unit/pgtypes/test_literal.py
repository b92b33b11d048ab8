"""Quotes and backslashes."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.literal import read_quoting


def _read(text: bytes) -> tuple[str, list[int]]:
    quoting = read_quoting(np.frombuffer(text, np.uint8), np.array([len(text)]), "thing")
    return "".join("q" if q else "i" if i else "." for q, i in zip(quoting.quotes, quoting.inside, strict=True)), list(
        quoting.escapes
    )


@pytest.mark.parametrize(
    ("text", "marks", "escapes"),
    [
        (b"", "", []),
        (b"a,b", "...", []),
        (b'"a",b', "qiq..", []),
        (rb'"a\"b"', "qiiiiq", [2]),
        (rb'"\\"', "qiiq", [1]),
        (rb'"\\\""', "qiiiiq", [1, 3]),
        (rb'"\\","\""', "qiiq.qiiq", [1, 6]),
    ],
)
def test_marks(text: bytes, marks: str, escapes: list[int]) -> None:
    assert _read(text) == (marks, escapes)


@pytest.mark.parametrize("text", [b'"', rb'"\"', b'"a', b"a\\"])
def test_an_open_quote_is_malformed(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="thing"):
        _read(text)


def test_a_quote_cannot_close_in_the_next_literal() -> None:
    with pytest.raises(ProtocolError, match="thing"):
        read_quoting(np.frombuffer(b'"""""', np.uint8), np.array([1, 5]), "thing")


def test_many_quotes() -> None:
    marks, _ = _read(b'"a"' * 1000)
    assert marks == "qiq" * 1000
