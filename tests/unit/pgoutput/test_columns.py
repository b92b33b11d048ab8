from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgoutput.batch import PADDING
from headrace.pgoutput.columns import bitmap, convert
from headrace.pgoutput.tuples import Cells
from headrace.pgtypes.registry import builtin_type, conversion_for

INT4, TEXT, BYTEA, NUMERIC, INT4_ARRAY = 23, 25, 17, 1700, 1007


def cells(values: list[tuple[str, bytes]], gap: int = 3) -> tuple[Cells, np.ndarray]:
    sizes = np.array([len(content) for _, content in values])
    starts = gap + np.concatenate(([0], np.cumsum(sizes + gap)[:-1]))
    data = b"".join(b"#" * gap + content for _, content in values) + bytes(PADDING)
    return Cells(np.array([ord(letter) for letter, _ in values], dtype=np.uint8), starts, sizes), np.frombuffer(
        data, dtype=np.uint8
    )


def converted(values: list[tuple[str, bytes]], oid: int = TEXT, typmod: int = -1) -> pa.Array:
    type_ = builtin_type(oid)
    assert type_ is not None
    found = convert(*cells(values), conversion_for(type_, typmod))
    found.values.validate(full=True)
    return found


def test_text_nulls_and_empty_strings() -> None:
    values = [("t", b"a"), ("n", b""), ("t", b""), ("u", b""), ("t", "ünï🙂".encode()), ("t", b"x" * 5000)]
    assert converted(values).values.to_pylist() == ["a", None, "", None, "ünï🙂", "x" * 5000]


def test_nothing_but_nulls_has_the_type_of_the_column() -> None:
    found = converted([("n", b""), ("u", b"")], INT4)
    assert found.values.to_pylist() == [None, None]
    assert found.values.type == pa.int32()


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (INT4, b"-7", -7),
        (TEXT, b"abc", "abc"),
        (BYTEA, rb"\x00ff", b"\x00\xff"),
        (INT4_ARRAY, b"{1,NULL}", [1, None]),
    ],
)
def test_values_of_a_type(oid: int, text: bytes, value: object) -> None:
    assert converted([("t", text), ("n", b""), ("t", text)], oid).values.to_pylist() == [value, None, value]


def test_rejected_values() -> None:
    found = converted([("t", b"1.5"), ("t", b"NaN"), ("n", b"")], NUMERIC, (8 << 16 | 2) + 4)
    assert [str(value) for value in found.values.to_pylist()] == ["1.50", "None", "None"]
    assert found.rejected is not None
    assert found.rejected.positions.to_pylist() == [1]
    assert found.rejected.texts.to_pylist() == ["NaN"]


@pytest.mark.parametrize("size", range(9))
def test_text_that_is_not_utf8(size: int) -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        converted([("t", b"a" * size + b"\xff"), ("t", b"b" * size)])


def test_text_cut_inside_a_character_is_not_mended_by_its_neighbour() -> None:
    whole = "ä".encode()
    with pytest.raises(ProtocolError, match="UTF-8"):
        converted([("t", whole[:1]), ("t", whole[1:])])


def test_bitmap() -> None:
    assert bitmap(np.array([True, True])) is None
    assert bytes(bitmap(np.array([True, False, True] + [False] * 6 + [True])))[:2] == b"\x05\x02"
