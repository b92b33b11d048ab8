"""Values set aside, and errors that keep values to themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.rejection import cast_or_reject, cast_texts, reject


def _is_many(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.equal(texts, "many")


def test_nothing_is_rejected_when_the_cast_succeeds() -> None:
    converted = cast_or_reject(pa.array(["1", None]), pa.int32(), "integer", _is_many)
    assert converted.values.to_pylist() == [1, None]
    assert converted.rejected is None


def test_a_rejected_value_is_null_and_its_text_is_kept() -> None:
    converted = cast_or_reject(pa.array([None, "1", "many", "2", "many"]), pa.int32(), "integer", _is_many)
    assert converted.values.to_pylist() == [None, 1, None, 2, None]
    assert converted.rejected is not None
    assert converted.rejected.positions.to_pylist() == [2, 4]
    assert converted.rejected.positions.type == pa.int64()
    assert converted.rejected.texts.to_pylist() == ["many", "many"]


@pytest.mark.parametrize("texts", [["secret"], ["many", "secret"]])
def test_an_unknown_text_is_an_error_that_does_not_show_it(texts: list[str]) -> None:
    with pytest.raises(ProtocolError, match="integer") as caught:
        cast_or_reject(pa.array(texts), pa.int32(), "integer", _is_many)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_plain_cast_hides_the_value_too() -> None:
    with pytest.raises(ProtocolError) as caught:
        cast_texts(pa.array(["secret"]), pa.int32(), "integer")
    assert "secret" not in str(caught.value)


def test_no_bad_values_means_no_rejection() -> None:
    assert reject(pa.array([1]), np.array([False]), pa.array([], pa.string())).rejected is None
