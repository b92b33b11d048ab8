"""fold.codes: equal codes for equal values, and for no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.destinations.fold.codes import combined_codes, key_column_codes, value_codes

NAN = float("nan")
PAIR = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])
CASES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [0, 1, -1, None]),
    (pa.float32(), [NAN, 0.0, -0.0, None, float("inf")]),
    (pa.string(), ["", "a", "A", "NULL", None]),
    (pa.string_view(), ["", "a", "longer than twelve bytes", None]),
    (pa.binary(), [b"", b"\0", b"\0\0", None]),
    (pa.list_(pa.int32()), [[], None, [None], [1], [1, 1], [1, None], [None, 1], [256], [0], [0, 0]]),
    (pa.list_(pa.list_(pa.string())), [[], [[]], [[], []], [None], [[None]], [["a"], ["b"]], [["a", "b"]], None]),
    (
        pa.map_(pa.string(), pa.string()),
        [[], None, [("a", None)], [("a", "b")], [("b", "a")], [("a", "b"), ("c", "d")]],
    ),
    (PAIR, [None, {"x": None, "y": None}, {"x": 1, "y": None}, {"x": 1, "y": ""}, {"x": 2, "y": ""}]),
    (pa.list_(PAIR), [[None], [{"x": None, "y": None}], [], None]),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[str(kind) for kind, _ in CASES])
def test_codes_tell_values_apart(kind: pa.DataType, values: list[Any]) -> None:
    count = len(values)
    # The second half again, in other chunks and sliced out of larger arrays.
    column = pa.chunked_array([pa.array(values, kind), pa.array([values[0], *values, values[0]], kind)[1:-1]])

    codes = value_codes(column)

    assert len(set(codes[:count].tolist())) == count
    assert codes[count:].tolist() == codes[:count].tolist()


def test_values_below_a_null_list_are_not_seen() -> None:
    offsets = pa.py_buffer(np.array([0, 2, 3], dtype=np.int32))
    first_is_null = pa.py_buffer(b"\x02")
    column = pa.Array.from_buffers(
        pa.list_(pa.int32()), 2, [first_is_null, offsets], children=[pa.array([1, 2, 3], pa.int32())]
    )

    codes = value_codes(pa.chunked_array([column, pa.array([None, [3]], pa.list_(pa.int32()))]))

    assert codes[:2].tolist() == codes[2:].tolist()
    assert codes[0] != codes[1]


def test_zeros_are_one_key() -> None:
    codes = key_column_codes(pa.chunked_array([pa.array([0.0, -0.0, NAN, NAN, None])]))

    assert codes[0] == codes[1]
    assert codes[2] == codes[3]
    assert len(set(codes.tolist())) == 3


def test_combination_does_not_overflow() -> None:
    # Given: columns whose ranges multiply to far more than 64 bits, and rows that differ in the first one only
    large = (1 << 40) - 1
    first, other = np.array([0, large, 1, 0]), np.array([large, large, large, large])

    # When
    codes = combined_codes([first, other, other, other])

    # Then
    assert codes[0] == codes[3]
    assert set(codes.tolist()) == {0, 1, 2}


def test_nothing_has_no_codes() -> None:
    empty = pa.chunked_array([], pa.string())

    assert len(combined_codes([value_codes(empty), value_codes(empty)])) == 0
