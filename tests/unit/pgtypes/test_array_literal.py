"""Array literals."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.array_literal import read_literals


def _read(texts: list[str], delimiter: str = ",") -> list[list[str | None]]:
    elements, offsets = read_literals(pa.array(texts, pa.string()), delimiter, "text[]")
    elements.validate(full=True)
    items = elements.to_pylist()
    return [items[start:end] for start, end in pairwise(offsets)]


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("{}", []),
        ("{1}", ["1"]),
        ("{1,2,3}", ["1", "2", "3"]),
        ("{NULL}", [None]),
        ('{"NULL"}', ["NULL"]),
        ("{NULL,a,NULL}", [None, "a", None]),
        ("{NULLS,NULl,xNULL}", ["NULLS", "NULl", "xNULL"]),
        ('{""}', [""]),
        ('{"","",a}', ["", "", "a"]),
        ('{"a,b","{c}","d e"}', ["a,b", "{c}", "d e"]),
        (r'{"a\"b","\\","\\\\\""}', ['a"b', "\\", '\\\\"']),
        ('{"a\nb",😀,"é\r"}', ["a\nb", "😀", "é\r"]),
        ('{"[0:1]={a}"}', ["[0:1]={a}"]),
    ],
)
def test_elements(text: str, elements: list[str | None]) -> None:
    assert _read([text]) == [elements]
    assert _read(["{x}", text, "{}", text]) == [["x"], elements, [], elements]


def test_another_delimiter() -> None:
    assert _read(["{(1,2),(0,0);(3,4),(1,1)}"], ";") == [["(1,2),(0,0)", "(3,4),(1,1)"]]


def test_no_arrays() -> None:
    assert _read([]) == []


def test_a_long_array() -> None:
    assert _read(["{" + ",".join(map(str, range(100_000))) + "}"]) == [[str(n) for n in range(100_000)]]


@pytest.mark.parametrize(
    "text", ["", "{", "}", "1", "{1", "1}", "{1}}", "{{1}}", "{,}", "{1,}", "{,1}", '{"}', "{}{}", "}{"]
)
def test_what_is_no_array_is_malformed(text: str) -> None:
    with pytest.raises(ProtocolError, match=r"text\[\]"):
        _read(["{a}", text, "{b}"])
