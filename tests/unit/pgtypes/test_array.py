"""Arrays as lists."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.array import ArrayConversion
from headrace.pgtypes.datetime import DateConversion
from headrace.pgtypes.number import NumberConversion
from headrace.pgtypes.text import TextConversion

INTEGERS = ArrayConversion(NumberConversion("integer", "int32"))
TEXTS = ArrayConversion(TextConversion())
DATES = ArrayConversion(DateConversion())


LITERALS = pa.array(["{1,NULL}", None, "{}", "{{1,2},{3,4}}", "[0:0]={7}", "{5}"])


def test_lists_and_what_is_unlike_a_list() -> None:
    converted = INTEGERS.from_text(LITERALS)
    converted.values.validate(full=True)
    assert converted.values.type == INTEGERS.arrow_type == pa.list_(pa.int32())
    assert converted.values.to_pylist() == [[1, None], None, [], None, None, [5]]
    assert converted.rejected is not None
    assert converted.rejected.positions.to_pylist() == [3, 4]
    assert converted.rejected.texts.to_pylist() == ["{{1,2},{3,4}}", "[0:0]={7}"]
    # What was rejected leaves nothing behind in the list's values.
    assert len(converted.values.values) == 3


def test_a_rejected_element_rejects_the_array() -> None:
    literals = pa.array(["{2000-01-01}", "{2000-01-02,infinity,-infinity}", "{}", "{NULL}", "{infinity}"])
    converted = DATES.from_text(literals)
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


def test_a_delimiter_of_its_own() -> None:
    boxes = ArrayConversion(TextConversion(), ";")
    assert boxes.from_text(pa.array(["{(1,2),(0,0);(3,4),(1,1)}"])).values.to_pylist() == [
        ["(1,2),(0,0)", "(3,4),(1,1)"]
    ]


def test_conversions_travel() -> None:
    assert pickle.loads(pickle.dumps(INTEGERS)) == INTEGERS
