"""Files of running transactions with flipped bits, cut short or gone: what is read is what was written, or an error."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from wiretap import insert, relation

from headrace.errors import RetryPolicy, SpoolIoError
from headrace.replication.chunk import Piece
from headrace.replication.streamed import StreamedTransaction

MESSAGES = [relation(5), insert(5, b"pay 1000"), insert(5, b"pay 9000")]


def spilled(directory: Path) -> tuple[StreamedTransaction, Path]:
    path = directory / "spilled"
    transaction = StreamedTransaction(3, lambda: path)
    for messages in (MESSAGES[:2], MESSAGES[2:]):
        piece = Piece.of_messages(messages, 7)
        xids = np.full(len(messages), 3, dtype=np.uint32)
        transaction.append(Piece.of(piece.lsns, piece.lengths, piece.data, xids))
    transaction.spill()
    return transaction, path


def read_back(transaction: StreamedTransaction) -> list[bytes]:
    found = []
    for piece in transaction.pieces():
        ends = np.cumsum(piece.lengths)
        found += [bytes(piece.data[end - length : end]) for end, length in zip(ends, piece.lengths, strict=True)]
        assert (piece.lsns == 7).all()
        assert piece.xids is not None
        assert (piece.xids == 3).all()
    return found


@pytest.fixture
def file() -> Iterator[tuple[StreamedTransaction, Path]]:
    with tempfile.TemporaryDirectory() as directory:
        yield spilled(Path(directory))


def is_refused(transaction: StreamedTransaction, path: Path, what: str) -> bool:
    """Read the file: it has what was written, or is refused by its name."""
    error = None
    try:
        found = read_back(transaction)
    except SpoolIoError as caught:
        error = caught
    if error is None:
        assert found == MESSAGES, what
        return False
    assert str(path) in str(error)
    assert error.retry is RetryPolicy.TIMED
    return True


def test_flipped_bits(file: tuple[StreamedTransaction, Path]) -> None:
    transaction, path = file
    content = path.read_bytes()
    refused = 0
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        refused += is_refused(transaction, path, f"byte {at}")
    # Padding and the names of columns are all that may change without harm.
    assert refused > len(content) / 2
    at = content.index(b"pay 1000")
    path.write_bytes(content.replace(b"pay 1000", b"pay 8000"))
    assert is_refused(transaction, path, f"message at {at}")


def test_files_cut_short_or_gone(file: tuple[StreamedTransaction, Path]) -> None:
    transaction, path = file
    content = path.read_bytes()
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        is_refused(transaction, path, f"{size} bytes")
    path.unlink()
    assert is_refused(transaction, path, "gone")
