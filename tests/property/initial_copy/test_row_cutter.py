"""Any CSV, arriving in any pieces, is cut where rows end and nowhere else."""

from __future__ import annotations

import csv
import io
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.initial_copy.row_cutter import RowCutter

fields = st.one_of(st.text(st.sampled_from('a,"\r\n\\.é'), max_size=12), st.text(max_size=8))
tables = st.lists(st.lists(fields, min_size=1, max_size=3), max_size=30)


def as_csv(row: list[str]) -> bytes:
    """As Postgres writes it: what needs quotes has them, quotes are doubled, rows end with a line feed."""
    quoted = ('"' + f.replace('"', '""') + '"' if any(c in f for c in ',"\r\n') else f for f in row)
    return (",".join(quoted) + "\n").encode("utf-8", "surrogatepass")


def cut(data: bytes, pieces: list[int], size: int) -> list[bytes]:
    cutter, chunks, at = RowCutter(size), [], 0
    for length in itertools.chain(pieces, itertools.repeat(7)):
        if at >= len(data):
            break
        chunks.append(cutter.feed(data[at : at + length]))
        at += length
    return [bytes(chunk) for chunk in [*chunks, cutter.finish()] if chunk]


@settings(max_examples=400, deadline=None)
@given(tables, st.lists(st.integers(1, 60), max_size=20), st.integers(1, 80))
def test_pieces_are_whole_rows_in_order(rows: list[list[str]], pieces: list[int], size: int) -> None:
    lines = [as_csv(row) for row in rows]
    chunks = cut(b"".join(lines), pieces, size)
    assert b"".join(chunks) == b"".join(lines)
    ends = set(itertools.accumulate(len(line) for line in lines))
    assert set(itertools.accumulate(len(chunk) for chunk in chunks)) <= ends


@settings(max_examples=100, deadline=None)
@given(tables.filter(bool), st.data())
def test_a_stream_that_ends_within_a_row_is_refused(rows: list[list[str]], data: st.DataObject) -> None:
    lines = [as_csv(row) for row in rows]
    ends = {0, *itertools.accumulate(len(line) for line in lines)}
    whole = b"".join(lines)
    end = data.draw(st.sampled_from([n for n in range(len(whole) + 1) if n not in ends] or [None]))
    if end is None:
        assert all(line == b"\n" for line in lines)
        return
    with pytest.raises(ProtocolError):
        cut(whole[:end], [], 1 << 20)


def test_pieces_have_about_the_size_asked_for() -> None:
    rows = [as_csv([str(n), "x\ny" if n % 3 else "z"]) for n in range(100_000)]
    chunks = cut(b"".join(rows), [1 << 14] * 1000, 1 << 16)
    assert len(chunks) > 10
    assert all(1 << 15 < len(chunk) <= (1 << 16) + (1 << 14) for chunk in chunks[:-1])
    assert sum(sum(1 for _ in csv.reader(io.StringIO(chunk.decode(), newline=""))) for chunk in chunks) == len(rows)


def test_a_row_larger_than_a_piece_comes_whole() -> None:
    rows = [as_csv(["x\n" * 300_000]), as_csv(["y"]), as_csv(['"\n"' * 200_000])]
    chunks = cut(b"".join(rows), [4096] * 10_000, 1 << 14)
    assert b"".join(chunks) == b"".join(rows)
    assert chunks[0].startswith(rows[0])
