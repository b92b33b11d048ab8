"""Fields with their length in front."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.fields import fields, int32_at


def _field(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def _lay_out(rows: Sequence[Sequence[bytes | None]], header: bytes = b"head") -> tuple[np.ndarray, ...]:
    data, begins, ends = b"", [], []
    for row in rows:
        data += header
        begins.append(len(data))
        data += b"".join(map(_field, row))
        ends.append(len(data))
    counts = [len(row) for row in rows]
    return np.frombuffer(data, np.uint8), np.array(begins), np.array(ends), np.array(counts)


ROWS = [
    [[b"a", None, b"", b"bcd"]],
    [[], [b"x"], [], [None]],
    [[b"1234", b"5678"], [b"9abc"]],
    [[b"\0\0\0\1" * 3, b"\xff\xff\xff\xff"], [b"\0\0\0\4", None]],
    [[bytes([n % 256]) * (n % 7) for n in range(1000)], [b"end"]],
    [[]],
]


@pytest.mark.parametrize("rows", ROWS)
def test_all_fields_in_order(rows: list[list[bytes | None]]) -> None:
    found = fields(*_lay_out(rows), "thing")
    found.validate(full=True)
    assert found.to_pylist() == [content for row in rows for content in row]


def test_many_shapes() -> None:
    chance = random.Random(7)
    for _ in range(50):
        rows = [
            [
                None if chance.random() < 0.1 else chance.randbytes(chance.randrange(9))
                for _ in range(chance.randrange(20))
            ]
            for _ in range(chance.randrange(1, 6))
        ]
        assert fields(*_lay_out(rows), "thing").to_pylist() == [content for row in rows for content in row]


def _broken(size: int, count: int, tail: bytes = b"abcd") -> tuple[np.ndarray, ...]:
    data = struct.pack(">i", size) + tail
    return np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]), np.array([count])


@pytest.mark.parametrize(
    ("size", "count"), [(3, 1), (5, 1), (-2, 1), (2**31 - 1, 1), (4, 2), (4, 0), (4, -1), (-1, 1), (-1, 2), (4, 10**9)]
)
def test_what_does_not_add_up_is_malformed(size: int, count: int) -> None:
    with pytest.raises(ProtocolError, match="thing"):
        fields(*_broken(size, count), "thing")


def test_a_field_cannot_reach_into_the_next_stretch() -> None:
    data, begins, ends, counts = _lay_out([[b"ab"], [b"cd"]])
    broken = data.copy()
    broken[begins[0] + 3] = 8
    with pytest.raises(ProtocolError, match="thing"):
        fields(broken, begins, ends, counts, "thing")


def test_integers_anywhere() -> None:
    data = np.frombuffer(b"x\xff\xff\xff\xfe\0\0\1\0", np.uint8)
    assert int32_at(data, np.array([1, 5])).tolist() == [-2, 256]
    assert int32_at(data, np.array([], np.int64)).tolist() == []


def test_nothing_is_binary_still() -> None:
    assert fields(*_lay_out([[]]), "thing").type == pa.binary()
