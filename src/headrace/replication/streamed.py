"""Transactions that the server sends while they are still running: each in files of its own until it ends.

They are nobody's until their commit. A commit replays the file into the spool; an abort removes it; a rolled-back
savepoint's messages are left out of the replay. After a reconnect the server sends them again from the start.

The checksums of what a file holds are kept in memory, as only the process that wrote it reads it. The server keeps a
transaction until its commit is confirmed. So a damaged file costs a new connection, and no changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import SpoolIoError
from ..pgoutput.decoder import decode
from ..pgoutput.messages import LogicalMessage
from ..postgres.ddl_messages import emitting_xid
from ..private_files import create_file
from ..spool.segment import UNREADABLE, plain_array, plain_values
from ..spool.spool import write_error
from .chunk import Kind, Piece

__all__ = ["StreamedTransaction"]

_SCHEMA = pa.schema(
    [
        pa.field("lsn", pa.uint64(), nullable=False),
        pa.field("xid", pa.uint32(), nullable=False),
        pa.field("message", pa.binary(), nullable=False),
    ]
)


class StreamedTransaction:
    """One running transaction: its newest messages in memory, the rest in files, one per spill."""

    def __init__(self, xid: int, new_path: Callable[[], Path]) -> None:
        self.xid = xid
        self.relations: dict[int, tuple[int, bytes]] = {}
        """The Relation messages it brought, each with its place in the order of arrival."""
        self._new_path = new_path
        self._files: list[tuple[Path, list[int]]] = []
        """Each with the checksums of its pieces, in order."""
        self._pieces: list[Piece] = []
        self._aborted: set[int] = set()
        self.buffered = 0

    def append(self, piece: Piece) -> None:
        self._pieces.append(_attributed(piece))
        self.buffered += piece.size

    def abort(self, subxid: int) -> None:
        """A savepoint was rolled back: none of its changes happened."""
        self._aborted.add(subxid)

    def spill(self) -> None:
        """Move what is in memory to a file. If the disk refuses, it stays in memory and no file is left."""
        path = self._new_path()
        try:
            create_file(path)
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
                for piece in self._pieces:
                    writer.write_batch(_record_batch(piece))
        except OSError as error:
            path.unlink(missing_ok=True)
            raise write_error(path, error) from error
        self._files.append((path, [_checksum(p.lsns, p.lengths, p.data, p.xids) for p in self._pieces]))
        self._pieces.clear()
        self.buffered = 0

    def pieces(self) -> Iterator[Piece]:
        """Everything that was not rolled back, in order, one piece in memory at a time.

        Raises SpoolIoError for a file that is not as it was written.
        """
        for path, checksums in self._files:
            # Read, not mapped: mapped pages would count as this process's memory.
            with _file_errors(path), pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
                for checksum in checksums:
                    columns = _columns(reader.read_next_batch())
                    if _checksum(*columns) != checksum:
                        raise _damaged(path, "its content does not match its checksum")
                    yield self._without_aborted(Piece.of(*columns))
        for piece in self._pieces:
            yield self._without_aborted(piece)

    def discard(self) -> None:
        self._pieces.clear()
        for path, _ in self._files:
            path.unlink(missing_ok=True)

    def _without_aborted(self, piece: Piece) -> Piece:
        assert piece.xids is not None
        # Relation and Type stay: the server sends them once per transaction and counts on their being known afterwards,
        # even when the savepoint they arrived in was rolled back.
        schema = (piece.kinds == Kind.RELATION) | (piece.kinds == Kind.TYPE)
        keep = schema | ~np.isin(piece.xids, list(self._aborted))
        if keep.all():
            return piece
        return Piece.of(*_columns(_record_batch(piece).take(plain_array(np.flatnonzero(keep)))))


def _checksum(
    lsns: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.int64],
    data: bytes | memoryview,
    xids: npt.NDArray[np.uint32] | None,
) -> int:
    assert xids is not None
    numbers = zlib.crc32(np.ascontiguousarray(lsns).data)
    numbers = zlib.crc32(np.ascontiguousarray(lengths).data, numbers)
    return zlib.crc32(data, zlib.crc32(np.ascontiguousarray(xids).data, numbers))


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, detail: str) -> SpoolIoError:
    return SpoolIoError(
        f"the file {path}, which holds a part of a running transaction, is damaged",
        detail=detail,
        hint="nothing to do: the receiver starts again, and the server sends the transaction again; if the error comes "
        "back, check the disk",
    )


def _attributed(piece: Piece) -> Piece:
    """The piece with our event trigger's messages under the savepoint that emitted them.

    To logical messages alone Postgres gives the id of the transaction, so that they would outlive their savepoint.
    """
    assert piece.xids is not None
    xids = piece.xids.copy()
    for at, message in zip(np.flatnonzero(piece.kinds == Kind.MESSAGE), piece.messages(Kind.MESSAGE), strict=True):
        emitted = decode(message)
        assert isinstance(emitted, LogicalMessage)
        xids[at] = emitting_xid(emitted.prefix, emitted.content) or xids[at]
    return replace(piece, xids=xids)


def _record_batch(piece: Piece) -> Any:
    offsets = np.zeros(len(piece.lengths) + 1, dtype=np.int32)
    np.cumsum(piece.lengths, out=offsets[1:])
    messages = pa.Array.from_buffers(
        pa.binary(), len(piece.lengths), [None, pa.py_buffer(offsets), pa.py_buffer(piece.data)]
    )
    assert piece.xids is not None
    return pa.record_batch([plain_array(piece.lsns), plain_array(piece.xids), messages], schema=_SCHEMA)


def _columns(
    batch: Any,
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], bytes | memoryview, npt.NDArray[np.uint32]]:
    """Return the LSNs, the lengths and the bytes of the messages, and their transaction ids."""
    _, offsets, data = batch.column("message").buffers()
    ends = np.frombuffer(offsets, dtype=np.int32, count=batch.num_rows + 1)
    values = memoryview(data)[ends[0] : ends[-1]] if data is not None else b""
    lsns, xids = plain_values(batch.column("lsn"), np.uint64), plain_values(batch.column("xid"), np.uint32)
    return lsns, np.diff(ends).astype(np.int64), values, xids
