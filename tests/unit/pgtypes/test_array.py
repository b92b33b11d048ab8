"""Arrays as lists."""

from __future__ import annotations

import pickle
import struct

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError, SourceUnsupported
from headrace.pgtypes.array import ArrayConversion
from headrace.pgtypes.datetime import DateConversion
from headrace.pgtypes.integer import IntegerConversion
from headrace.pgtypes.text import TextConversion

INTEGERS = ArrayConversion(IntegerConversion("integer", ">i4", "int32"))
TEXTS = ArrayConversion(TextConversion("text"))
DATES = ArrayConversion(DateConversion())


def _send(numbers: list[int | None], *dimensions: tuple[int, int]) -> bytes:
    header = struct.pack(">iiI", len(dimensions), 0, 23) + b"".join(struct.pack(">ii", *d) for d in dimensions)
    return header + b"".join(b"\xff" * 4 if n is None else struct.pack(">ii", 4, n) for n in numbers)


LITERALS = pa.array(["{1,NULL}", None, "{}", "{{1,2},{3,4}}", "[0:0]={7}", "{5}"])
BINARIES = pa.array([
    _send([1, None], (2, 1)), None, _send([]), _send([1, 2, 3, 4], (2, 1), (2, 1)),
    _send([7], (1, 0)), _send([5], (1, 1)),
])  # fmt: skip


@pytest.mark.parametrize("form", ["text", "binary"])
def test_lists_and_what_is_unlike_a_list(form: str) -> None:
    converted = INTEGERS.from_text(LITERALS) if form == "text" else INTEGERS.from_binary(BINARIES)
    converted.values.validate(full=True)
    assert converted.values.type == INTEGERS.arrow_type == pa.list_(pa.int32())
    assert converted.values.to_pylist() == [[1, None], None, [], None, None, [5]]
    assert converted.rejected is not None
    assert converted.rejected.positions.to_pylist() == [3, 4]
    assert converted.rejected.texts.to_pylist() == ["{{1,2},{3,4}}", "[0:0]={7}"]
    # What was rejected leaves nothing behind in the list's values.
    assert len(converted.values.values) == 3


def test_printing() -> None:
    assert INTEGERS.text_from_binary(BINARIES).equals(LITERALS)


@pytest.mark.parametrize("form", ["text", "binary"])
def test_a_rejected_element_rejects_the_array(form: str) -> None:
    literals = pa.array(["{2000-01-01}", "{2000-01-02,infinity,-infinity}", "{}", "{NULL}", "{infinity}"])
    days = [[0], [1, 2**31 - 1, -(2**31)], [], [None], [2**31 - 1]]
    binaries = pa.array([_send(row, *([(len(row), 1)] if row else [])) for row in days])
    converted = DATES.from_text(literals) if form == "text" else DATES.from_binary(binaries)
    assert [row and [str(day) for day in row] for row in converted.values.to_pylist()] == [
        ["2000-01-01"], None, [], ["None"], None,
    ]  # fmt: skip
    assert converted.rejected is not None
    assert converted.rejected.positions.to_pylist() == [1, 4]
    assert converted.rejected.texts.to_pylist() == ["{2000-01-02,infinity,-infinity}", "{infinity}"]


@pytest.mark.parametrize("texts", [[], [None], ["{}"], ["{{1}}"]])
def test_columns_without_elements(texts: list[str | None]) -> None:
    values = INTEGERS.from_text(pa.array(texts, pa.string())).values
    assert values.type == pa.list_(pa.int32())
    assert values.to_pylist() == [[] if text == "{}" else None for text in texts]


def test_quoted_null_is_text() -> None:
    assert TEXTS.from_text(pa.array(['{"NULL",NULL,""}'])).values.to_pylist() == [["NULL", None, ""]]


def test_malformed_elements_are_malformed() -> None:
    with pytest.raises(ProtocolError, match="integer"):
        INTEGERS.from_text(pa.array(["{one}"]))


def test_binary_is_as_good_as_the_elements() -> None:
    boxes = ArrayConversion(TextConversion("box", None), ";")
    assert INTEGERS.supports_binary
    assert not boxes.supports_binary
    assert boxes.from_text(pa.array(["{(1,2),(0,0);(3,4),(1,1)}"])).values.to_pylist() == [
        ["(1,2),(0,0)", "(3,4),(1,1)"]
    ]
    with pytest.raises(SourceUnsupported, match="box"):
        boxes.from_binary(pa.array([_send([1], (1, 1))]))


def test_conversions_travel() -> None:
    assert pickle.loads(pickle.dumps(INTEGERS)) == INTEGERS
