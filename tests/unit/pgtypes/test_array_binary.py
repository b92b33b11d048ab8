"""The binary form of arrays, of any shape."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.array_binary import print_arrays, read_binary_arrays


def send(elements: Sequence[str | None], *dimensions: tuple[int, int]) -> bytes:
    header = struct.pack(">iiI", len(dimensions), int(None in elements), 25)
    bounds = b"".join(struct.pack(">ii", length, lower) for length, lower in dimensions)
    body = (b"\xff" * 4 if e is None else struct.pack(">i", len(e.encode())) + e.encode() for e in elements)
    return header + bounds + b"".join(body)


SHAPES = [
    (send([]), "{}"),
    (send(["a", None, "b c"], (3, 1)), '{a,NULL,"b c"}'),
    (send(["NULL", "null", "", "x"], (4, 1)), '{"NULL","null","",x}'),
    (send(['"', "\\", "{", "}", ",", "\v", "é"], (7, 1)), '{"\\"","\\\\","{","}",",","\v",é}'),
    (send(list("abcd"), (2, 1), (2, 1)), "{{a,b},{c,d}}"),
    (send(list("abcdefgh"), (2, 1), (2, 1), (2, 1)), "{{{a,b},{c,d}},{{e,f},{g,h}}}"),
    (send(["a", "b"], (2, 0)), "[0:1]={a,b}"),
    (send(["a"], (1, -5)), "[-5:-5]={a}"),
    (send(list("ab"), (2, 1), (1, 3)), "[1:2][3:3]={{a},{b}}"),
    (send(["a"], *[(1, 1)] * 6), "{{{{{{a}}}}}}"),
]


def test_printing() -> None:
    arrays = read_binary_arrays(pa.array([value for value, _ in SHAPES]), "text[]")
    texts = print_arrays(arrays, arrays.elements.cast(pa.string()), ",")
    assert texts.to_pylist() == [text for _, text in SHAPES]


def test_the_delimiter_is_quoted() -> None:
    arrays = read_binary_arrays(pa.array([send(["a;b", "c,d"], (2, 1))]), "box[]")
    assert print_arrays(arrays, arrays.elements.cast(pa.string()), ";").to_pylist() == ['{"a;b";c,d}']


def test_which_are_like_a_list() -> None:
    arrays = read_binary_arrays(pa.array([value for value, _ in SHAPES]), "text[]")
    assert arrays.unlike_list.tolist() == [False] * 4 + [True] * 6
    assert arrays.counts.tolist() == [0, 3, 4, 7, 4, 8, 2, 1, 2, 1]


GOOD = send(["a"], (1, 1))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0" * 11,
        struct.pack(">iiI", 7, 0, 25) + b"\0" * 60,
        struct.pack(">iiI", -1, 0, 25),
        struct.pack(">iiI", 1, 0, 25),
        GOOD[:-1],
        GOOD + b"\0",
        send(["a"], (2, 1)),
        send(["a"], (0, 1)),
        send(["a"], (-1, 1)),
        send(["a"], *[(2**31 - 1, 1)] * 6),
    ],
)
def test_what_does_not_add_up_is_malformed(value: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"text\[\]"):
        read_binary_arrays(pa.array([GOOD, value, GOOD]), "text[]")
