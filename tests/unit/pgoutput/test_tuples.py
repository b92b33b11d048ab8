from __future__ import annotations

import numpy as np
import pytest

from headrace.errors import ProtocolError
from headrace.events import UNCHANGED
from headrace.pgoutput import messages as m
from headrace.pgoutput.batch import PADDING
from headrace.pgoutput.encoder import encode
from headrace.pgoutput.tuples import walk_tuples

HEAD = 6  # an Insert's kind, relation id and 'N'


def laid_out(payloads: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ends = np.cumsum([len(payload) for payload in payloads])
    starts = ends - [len(payload) for payload in payloads]
    return np.frombuffer(b"".join(payloads) + bytes(PADDING), dtype=np.uint8), starts, ends


def tuples(*rows: m.TupleData) -> list[bytes]:
    return [encode(m.Insert(1, row))[HEAD:] for row in rows]


def test_every_format_in_one_column() -> None:
    rows = ((m.Text(b"hello"), None), (None, m.Text(b"")), (UNCHANGED, m.Text(b"x")), (m.Text(b"\0\1"), UNCHANGED))
    data, starts, ends = laid_out(tuples(*rows))
    columns, behind = walk_tuples(data, starts, ends, 2)
    assert (behind == ends).all()
    for number, cells in enumerate(columns):
        assert (np.diff(cells.starts) >= 0).all()
        for row, letter, start, size in zip(rows, cells.formats, cells.starts, cells.sizes, strict=True):
            value = row[number]
            content = value.data if isinstance(value, m.Text) else b""
            assert data[start : start + size].tobytes() == content
            assert chr(letter) == {m.Text: "t", type(None): "n"}.get(type(value), "u")


def test_no_columns_at_all() -> None:
    data, starts, ends = laid_out(tuples((), ()))
    columns, behind = walk_tuples(data, starts, ends, 0)
    assert columns == []
    assert (behind == ends).all()


@pytest.mark.parametrize(
    ("bad", "columns"),
    [
        (b"", 1),
        (b"\0", 0),
        (b"\0\1", 1),
        (b"\0\2nn", 1),
        (b"\0\1x", 1),
        (b"\0\1b\0\0\0\1a", 1),
        (b"\0\1t\0\0\0", 1),
        (b"\0\1t\0\0\0\2a", 1),
        (b"\0\1t\xff\xff\xff\xff", 1),
        (b"\0\2t\x7f\xff\xff\xffn", 2),
    ],
)
def test_a_malformed_tuple_is_noticed_wherever_it_stands(bad: bytes, columns: int) -> None:
    good = b"\0" + bytes([columns]) + b"n" * columns
    for payloads in ([bad], [bad, good, good], [good, bad, good], [good, good, bad]):
        data, starts, ends = laid_out(payloads)
        with pytest.raises(ProtocolError):
            walk_tuples(data, starts, ends, columns)
