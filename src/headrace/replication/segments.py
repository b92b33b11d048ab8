"""Cuts the stream of messages into segments: at commits, by size and age, whole transactions only.

A transaction that outgrows a segment is written in parts as it arrives; they are published together at its commit.
Until then they lie in staging, where a crash leaves them without meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from struct import Struct

import numpy as np

from ..errors import ProtocolError
from ..lsn import INVALID_LSN, Lsn
from ..schema import DDL_PREFIX, NO_TABLE, PUBLICATION_PREFIX
from ..spool import SegmentIndex, Spool, SpoolPosition, TableIndex, relation_digest
from ..spool.name import IdleMark, SegmentName
from .chunk import PREFIX_AT, Kind, Piece

__all__ = ["Persist", "Relations", "SegmentWriter", "at_once"]

Relations = Mapping[int, bytes]
"""Table OID to the Relation message in force. Never changed in place: a piece keeps the one it was received under."""

Persist = Callable[[Callable[[], object]], None]
"""Runs an action that touches the spool's place. An action that failed may be run again."""

LARGEST_SEGMENT = 2**31 - 64 * 2**20
"""Bytes of messages that a segment may have: offsets are 32-bit integers. The rest is for what stands in front."""

_TRUNCATE = Struct(">cIB")

_PUBLICATION = PUBLICATION_PREFIX.encode() + b"\0"


def at_once(action: Callable[[], object]) -> None:
    """The plain `Persist`: a failure is the caller's."""
    action()


@dataclass(frozen=True, slots=True)
class _Held:
    piece: Piece
    relations: Relations


class SegmentWriter:
    """Holds at most one segment in memory, beside the transaction that is just arriving."""

    def __init__(self, spool: Spool, position: SpoolPosition, segment_bytes: int, persist: Persist = at_once) -> None:
        self._spool = spool
        self._segment_bytes = segment_bytes
        self._persist = persist
        self.spooled = position.end
        self.covered = position.covered
        self._marked = IdleMark(position.end, position.covered)
        self._held: list[_Held] = []
        self._whole = 0
        """How many of the held pieces, from the front, end with a commit; what follows is an open transaction."""
        self._end = position.end
        self._size = 0
        self._parts: list[Path] = []
        self.published: list[tuple[Lsn, int]] = []
        """End and size of the segments published since someone last took them from here."""
        self._begin = b""
        self._ordinal = 0

    @property
    def end(self) -> Lsn:
        """The end of the last whole transaction, published or held: where a new connection takes over."""
        return max(self._end, self.covered)

    @property
    def publishable(self) -> bool:
        return self._whole > 0

    @property
    def idle(self) -> bool:
        return not self._held and not self._parts

    def append(self, piece: Piece, relations: Relations, end: Lsn | None) -> None:
        """Take a piece; `end` is given when it ends with a whole transaction, and is where that one ends."""
        if self._size + piece.size > LARGEST_SEGMENT:
            self._cut()
        self._held.append(_Held(piece, relations))
        self._size += piece.size
        if end is not None:
            self._whole, self._end = len(self._held), end
        if self._size >= self._segment_bytes:
            if self._whole:
                self.publish()
            if self._size >= self._segment_bytes:
                self._stage_part()

    def _cut(self) -> None:
        """Write everything held, so that a segment never outgrows the offsets of its messages."""
        self.publish()
        if self._held:
            self._stage_part()

    def publish(self) -> None:
        """Publish every whole transaction held."""
        if not self._whole:
            return
        count = len(self._parts) + 1
        last = SegmentName(self.spooled, self._end, count, count)
        parts = [*self._parts, self._write(self._held[: self._whole], last)]
        size = sum(path.stat().st_size for path in parts)
        for part, path in enumerate(parts, 1):
            self._persist(partial(self._spool.publish, path, SegmentName(self.spooled, self._end, part, len(parts))))
        self._persist(self._spool.sync)
        self.published.append((self._end, size))
        self.spooled = self._end
        self.covered = max(self.covered, self._end)
        self._held = self._held[self._whole :]
        self._size = sum(held.piece.size for held in self._held)
        self._whole = self._ordinal = 0
        self._parts, self._begin = [], b""

    def cover(self, position: Lsn) -> None:
        """The server has nothing for us before `position`. Recorded before it can be confirmed."""
        if not self.idle or position <= self.covered:
            return
        mark = IdleMark(self.spooled, position)
        self._persist(lambda: self._spool.mark_idle(mark, self._marked))
        self._marked = mark
        self.covered = position

    def discard_open(self) -> None:
        """Forget the transaction that is not complete: the server sends it again."""
        self._held = self._held[: self._whole]
        self._size = sum(held.piece.size for held in self._held)
        if not self._whole:
            for path in self._parts:
                path.unlink(missing_ok=True)
            self._parts, self._begin, self._ordinal = [], b"", 0

    def _stage_part(self) -> None:
        first = self._held[0].piece
        begin = self._begin or bytes(first.data[: first.lengths[0]])
        if begin[0] != Kind.BEGIN:
            msg = "a transaction does not start with Begin"
            raise ProtocolError(msg)
        # Where the transaction ends, and how many parts it has, only the last part can tell.
        path = self._write(self._held, SegmentName(self.spooled, INVALID_LSN, len(self._parts) + 1, 0))
        self._parts.append(path)
        self._begin = begin
        self._ordinal += sum(held.piece.change_count() for held in self._held)
        self._held = []
        self._size = 0

    def _write(self, held: Sequence[_Held], name: SegmentName) -> Path:
        path = self._spool.stage()
        pieces = [self._preface(held), *(item.piece for item in held)]
        lsns = np.concatenate([piece.lsns for piece in pieces])
        lengths = np.concatenate([piece.lengths for piece in pieces])
        index = replace(_index(pieces, self._ordinal), name=name)
        data = [piece.data for piece in pieces]
        self._persist(lambda: self._spool.write(path, lsns, lengths, data, index))
        return path

    def _preface(self, held: Sequence[_Held]) -> Piece:
        """What makes a segment readable alone: the Relations in force, and the Begin of a transaction it continues."""
        wanted = np.unique(np.concatenate([item.piece.relations for item in held])).tolist()
        in_force = held[0].relations
        known = [in_force[oid] for oid in wanted if oid in in_force]
        return Piece.of_messages([*known, *([self._begin] if self._begin else [])], 0)


def _index(pieces: Sequence[Piece], first_ordinal: int) -> SegmentIndex:
    kinds = np.concatenate([piece.kinds for piece in pieces])
    relations = np.concatenate([piece.relations for piece in pieces])
    rows = _counts(relations[(relations != 0) & (kinds != Kind.RELATION)])
    announced = _announced(pieces)
    truncated = Counter(
        oid for piece in pieces for message in piece.messages(Kind.TRUNCATE) for oid in _truncated(message)
    )
    ddl = Counter(oid for piece in pieces for message in piece.messages(Kind.MESSAGE) for oid in _described(message))
    tables = {
        oid: TableIndex(rows.get(oid, 0), truncated[oid], announced.get(oid, ()), ddl[oid])
        for oid in sorted({*announced, *rows, *truncated, *ddl})
    }
    return SegmentIndex(tables, int(np.count_nonzero(kinds == Kind.MESSAGE)), first_ordinal)


def _announced(pieces: Sequence[Piece]) -> dict[int, tuple[str, ...]]:
    """Digests of the Relation messages per table, in order, repetitions left out."""
    found: dict[int, list[str]] = {}
    for piece in pieces:
        for message in piece.messages(Kind.RELATION):
            found.setdefault(int.from_bytes(message[1:5], "big"), []).append(relation_digest(message))
    return {oid: tuple(digest for digest, _ in groupby(digests)) for oid, digests in found.items()}


def _counts(oids: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> dict[int, int]:
    found, counts = np.unique(oids, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _truncated(message: bytes) -> list[int]:
    _, count, _ = _TRUNCATE.unpack_from(message)
    return [int(oid) for oid in np.frombuffer(message, dtype=">u4", count=count, offset=_TRUNCATE.size)]


def _described(message: bytes) -> Iterator[int]:
    """The table that a message of our event trigger is about, or none if it is about a publication.

    Anybody may emit messages: a strange one is nobody's.
    """
    if message.startswith(_PUBLICATION, PREFIX_AT):
        yield NO_TABLE
    prefix = DDL_PREFIX.encode()
    if message.startswith(prefix, PREFIX_AT):
        oid = message[PREFIX_AT + len(prefix) : message.find(b"\0", PREFIX_AT)]
        if oid.isdigit():
            yield int(oid)
