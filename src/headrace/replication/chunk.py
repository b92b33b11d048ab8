"""What came off the wire in one go, looked at with array operations: no loop over messages.

A `Chunk` is the CopyData contents as they arrived. A `Piece` is a run of its messages in protocol 1 form, laid out the
way a segment holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ProtocolError
from ..pgoutput.stream import XLOG_DATA_HEADER
from ..schema import OWN_SCHEMA

__all__ = ["PREFIX_AT", "Chunk", "Contents", "Kind", "Piece"]

Contents = list[memoryview]
"""CopyData contents in arrival order, each as libpq handed it over."""

HEADER = XLOG_DATA_HEADER.size
_XID = 4
"""Bytes of the transaction id that messages inside a stream block carry behind their kind."""
PREFIX_AT = 10
"""Where the prefix of a logical message begins: behind kind, flags and LSN."""
_FENCE = OWN_SCHEMA.encode() + b"\0"
"""The prefix of messages that only keep others apart at the source. They are left out: they would count as changes, and
of a rolled-back savepoint they come or not, by whether the transaction was streamed."""

_WAL_DATA = ord("w")
_KEEPALIVE = ord("k")


class Kind:
    """The first byte of a pgoutput message, for the kinds the receiver must tell apart."""

    BEGIN = ord("B")
    COMMIT = ord("C")
    ORIGIN = ord("O")
    RELATION = ord("R")
    TYPE = ord("Y")
    INSERT = ord("I")
    UPDATE = ord("U")
    DELETE = ord("D")
    TRUNCATE = ord("T")
    MESSAGE = ord("M")
    STREAM_START = ord("S")
    STREAM_STOP = ord("E")
    STREAM_COMMIT = ord("c")
    STREAM_ABORT = ord("A")
    KEEPALIVE = 0
    """Not a pgoutput message at all, but it stands between them."""


_CONTROL = np.zeros(256, dtype=bool)
_CONTROL[[Kind.STREAM_START, Kind.STREAM_STOP, Kind.STREAM_COMMIT, Kind.STREAM_ABORT, Kind.KEEPALIVE]] = True

_OF_RELATION = np.zeros(256, dtype=bool)
_OF_RELATION[[Kind.RELATION, Kind.INSERT, Kind.UPDATE, Kind.DELETE]] = True

_CHANGES = np.zeros(256, dtype=bool)
_CHANGES[[Kind.INSERT, Kind.UPDATE, Kind.DELETE, Kind.TRUNCATE, Kind.MESSAGE]] = True


def _gather(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], dtype: str) -> npt.NDArray[np.unsignedinteger]:
    """Read a number at each position. The view overlaps itself byte by byte, so any position is aligned enough."""
    width = np.dtype(dtype).itemsize
    if len(data) < width or (len(at) and int(at.max()) + width > len(data)):
        msg = "a message ends too early"
        raise ProtocolError(msg)
    view: npt.NDArray[np.unsignedinteger] = np.ndarray((len(data) - width + 1,), dtype=dtype, buffer=data, strides=(1,))
    return view[at]


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages in a row, all inside one transaction or up to a commit.

    `relations` is the table's OID for row messages and Relation, else 0. `xids` is there for pieces of a streamed
    transaction only: the (sub)transaction each message belongs to.
    """

    lsns: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.int64]
    data: bytes | memoryview
    kinds: npt.NDArray[np.uint8]
    relations: npt.NDArray[np.uint32]
    xids: npt.NDArray[np.uint32] | None = None

    @classmethod
    def of(
        cls,
        lsns: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.int64],
        data: bytes | memoryview,
        xids: npt.NDArray[np.uint32] | None = None,
    ) -> Piece:
        starts = np.cumsum(lengths) - lengths
        view = np.frombuffer(data, dtype=np.uint8)
        kinds = view[starts]
        emitted: list[int] = np.flatnonzero(kinds == Kind.MESSAGE).tolist()
        fences = [at for at in emitted if bytes(data[starts[at] + PREFIX_AT :][: len(_FENCE)]) == _FENCE]
        if fences:
            return cls._without(fences, lsns, lengths, data, xids)
        relations = np.zeros(len(lengths), dtype=np.uint32)
        keyed = _OF_RELATION[kinds]
        relations[keyed] = _gather(view, starts[keyed] + 1, ">u4") if keyed.any() else 0
        return cls(lsns, lengths, data, kinds, relations, xids)

    @classmethod
    def _without(
        cls,
        rows: list[int],
        lsns: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.int64],
        data: bytes | memoryview,
        xids: npt.NDArray[np.uint32] | None,
    ) -> Piece:
        ends = np.cumsum(lengths)
        edges = [0, *(edge for row in rows for edge in (ends[row] - lengths[row], ends[row])), len(data)]
        kept = b"".join([data[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)])
        others = None if xids is None else np.delete(xids, rows)
        return cls.of(np.delete(lsns, rows), np.delete(lengths, rows), kept, others)

    @classmethod
    def of_messages(cls, messages: Sequence[bytes], lsn: int) -> Piece:
        """Messages we made ourselves: they take the position of what they stand beside."""
        lengths = np.asarray([len(message) for message in messages], dtype=np.int64)
        return cls.of(np.full(len(messages), lsn, dtype=np.uint64), lengths, b"".join(messages))

    @property
    def size(self) -> int:
        return len(self.data)

    def change_count(self) -> int:
        """How many ordinals these messages take (see `events`); they are all of one transaction."""
        return int(np.count_nonzero(_CHANGES[self.kinds]))

    def messages(self, kind: int) -> list[bytes]:
        """The messages of a kind that is rare enough to be looked at one by one."""
        found = np.flatnonzero(self.kinds == kind)
        ends = np.cumsum(self.lengths)
        return [bytes(self.data[ends[i] - self.lengths[i] : ends[i]]) for i in found]


class Chunk:
    """CopyData contents in arrival order."""

    def __init__(self, contents: Sequence[bytes] | Sequence[memoryview]) -> None:
        self._contents = contents
        lengths = np.fromiter(map(len, contents), dtype=np.int64, count=len(contents))
        view = np.frombuffer(b"".join(contents), dtype=np.uint8)
        starts = np.cumsum(lengths) - lengths
        tags = view[starts] if len(lengths) and lengths.min() > 0 else np.zeros(len(lengths), dtype=np.uint8)
        wal = tags == _WAL_DATA
        if not np.all(wal | (tags == _KEEPALIVE)) or np.any(wal & (lengths <= HEADER)):
            msg = "the server sent something that is neither WAL data nor a keepalive"
            raise ProtocolError(msg)
        self._lengths = lengths
        self._starts = starts
        self._view = view
        self.kinds = np.zeros(len(lengths), dtype=np.uint8)
        self.kinds[wal] = view[starts[wal] + HEADER]

    def __len__(self) -> int:
        return len(self._contents)

    def controls(self) -> list[int]:
        """Where keepalives and the brackets of streamed transactions stand: few, each handled on its own."""
        found: list[int] = np.flatnonzero(_CONTROL[self.kinds]).tolist()
        return found

    def content(self, index: int) -> bytes:
        """A CopyData content as it came."""
        return bytes(self._contents[index])

    def payload(self, index: int) -> bytes:
        return bytes(self._contents[index][HEADER:])

    def piece(self, first: int, last: int) -> Piece:
        """The messages from `first` up to before `last`, outside any stream block, without empty transactions."""
        kinds = self.kinds[first:last]
        # Up to Postgres 14 every transaction is sent, also those that changed nothing published: Begin, then Commit.
        empty = np.zeros(len(kinds) + 1, dtype=bool)
        empty[:-2] = (kinds[:-1] == Kind.BEGIN) & (kinds[1:] == Kind.COMMIT)
        empty[1:-1] |= empty[:-2]
        if empty.any():
            return self._selected(first + np.flatnonzero(~empty[:-1]))
        data = b"".join([content[HEADER:] for content in self._contents[first:last]])
        return Piece.of(self._lsns(slice(first, last)), self._lengths[first:last] - HEADER, data)

    def _selected(self, rows: npt.NDArray[np.int64]) -> Piece:
        data = b"".join([self._contents[row][HEADER:] for row in rows])
        return Piece.of(self._lsns(rows), self._lengths[rows] - HEADER, data)

    def streamed_piece(self, first: int, last: int) -> Piece:
        """The same for messages inside a stream block: their transaction ids set apart, as if they had none.

        Origin is the one message that carries no transaction id there: it is kept whole, under the id 0.
        """
        origins = np.flatnonzero(self.kinds[first:last] == Kind.ORIGIN)
        if np.any(self._lengths[first:last] <= HEADER + _XID):
            msg = "a streamed message is too short to carry its transaction id"
            raise ProtocolError(msg)
        body = HEADER + 1 + _XID
        halves = [
            half for content in self._contents[first:last] for half in (content[HEADER : HEADER + 1], content[body:])
        ]
        for index in origins.tolist():
            halves[2 * index + 1] = self._contents[first + index][HEADER + 1 :]
        lengths = self._lengths[first:last] - HEADER - _XID
        lengths[origins] += _XID
        xids = _gather(self._view, self._starts[first:last] + HEADER + 1, ">u4").astype(np.uint32)
        xids[origins] = 0
        return Piece.of(self._lsns(slice(first, last)), lengths, b"".join(halves), xids)

    def boundary(self, first: int, last: int) -> int | None:
        """Behind which message of a run the last transaction in it is complete; None when none is."""
        kinds = self.kinds[first:last]
        ends = kinds == Kind.COMMIT
        logical = np.flatnonzero(kinds == Kind.MESSAGE)
        if len(logical):
            flags = self._view[self._starts[first:last][logical] + HEADER + 1]
            ends[logical[(flags & 1) == 0]] = True
        found = np.flatnonzero(ends)
        return None if len(found) == 0 else first + int(found[-1]) + 1

    def _lsns(self, rows: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return _gather(self._view, self._starts[rows] + 1, ">u8").astype(np.uint64)
