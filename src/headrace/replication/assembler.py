"""From the wire to whole transactions: knows who belongs to which transaction, and nothing about sockets or clocks.

Ordinary transactions arrive in one piece, at their commit. Large ones may be streamed while they run, in blocks, mixed
with others. Both leave here in commit order and in the same form: nothing behind the spool knows the difference.
"""

from __future__ import annotations

from ..errors import ProtocolError
from ..lsn import INVALID_LSN, Lsn
from ..pgoutput import messages as m
from ..pgoutput.decoder import decode
from ..pgoutput.encoder import begin_message, commit_message
from ..pgoutput.stream import Keepalive, read_stream_message
from ..spool import Spool
from .chunk import Chunk, Contents, Kind, Piece
from .segments import Persist, Relations, SegmentWriter, at_once
from .streamed import StreamedTransaction

__all__ = ["Assembler"]

STREAMED_BUFFER_BYTES = 8 * 1024 * 1024
"""Bytes of running transactions kept in memory, over all of them; beyond it the largest goes to disk."""


class Assembler:
    """Feed it chunks in order; it appends whole transactions to the segment writer."""

    def __init__(self, spool: Spool, writer: SegmentWriter, persist: Persist = at_once) -> None:
        self._spool = spool
        self._writer = writer
        self._persist = persist
        self._relations: Relations = {}
        self._arrivals: dict[int, int] = {}
        self._clock = 0
        self._streams: dict[int, StreamedTransaction] = {}
        self._block: StreamedTransaction | None = None
        self._begun: Contents = []
        self.server_position = INVALID_LSN
        """How far the server has read for us, by its last keepalive: everything before it has arrived."""

    def feed(self, contents: Contents) -> None:
        chunk = Chunk([*self._begun, *contents])
        self._begun = []
        done = 0
        for control in chunk.controls():
            self._run(chunk, done, control)
            self._control(chunk, control)
            done = control + 1
        self._run(chunk, done, len(chunk))

    def reset(self) -> None:
        """The connection is gone. The server repeats what was not complete, and every Relation."""
        self._writer.discard_open()
        for stream in self._streams.values():
            stream.discard()
        self._streams.clear()
        self._block = None
        self._begun = []
        self._relations, self._arrivals = {}, {}
        self.server_position = INVALID_LSN

    def _run(self, chunk: Chunk, first: int, last: int) -> None:
        if first == last:
            return
        if self._block is not None:
            self._append_streamed(self._block, chunk.streamed_piece(first, last))
            return
        boundary = chunk.boundary(first, last)
        if boundary is not None:
            self._append_whole(chunk.piece(first, boundary), _end_of(chunk.payload(boundary - 1)))
            first = boundary
        if last - first == 1 and last == len(chunk) and chunk.kinds[first] == Kind.BEGIN:
            # What follows tells whether there is anything in it.
            self._begun = [memoryview(chunk.content(first))]
        elif first < last and len((piece := chunk.piece(first, last)).kinds):
            self._append(piece, None)

    def _append_whole(self, piece: Piece, end: Lsn) -> None:
        if len(piece.kinds) or not self._writer.idle:
            self._append(piece, end)
        else:
            # Empty transactions only: as good as a keepalive.
            self.server_position = max(self.server_position, end)

    def _append(self, piece: Piece, end: Lsn | None) -> None:
        self._writer.append(piece, self._relations, end)
        for message in piece.messages(Kind.RELATION):
            self._learn(int.from_bytes(message[1:5], "big"), message, self._tick())

    def _append_streamed(self, stream: StreamedTransaction, piece: Piece) -> None:
        for message in piece.messages(Kind.RELATION):
            stream.relations[int.from_bytes(message[1:5], "big")] = (self._tick(), message)
        stream.append(piece)
        while sum(stream.buffered for stream in self._streams.values()) > STREAMED_BUFFER_BYTES:
            self._persist(max(self._streams.values(), key=lambda stream: stream.buffered).spill)

    def _control(self, chunk: Chunk, index: int) -> None:
        if chunk.kinds[index] == Kind.KEEPALIVE:
            keepalive = read_stream_message(chunk.content(index))
            assert isinstance(keepalive, Keepalive)
            self.server_position = max(self.server_position, keepalive.wal_end)
            return
        message = decode(chunk.payload(index))
        if isinstance(message, m.StreamStart):
            self._start_block(message)
        elif isinstance(message, m.StreamStop):
            self._block = None
        elif isinstance(message, m.StreamAbort):
            self._abort(message)
        elif isinstance(message, m.StreamCommit):
            self._commit(message)

    def _start_block(self, start: m.StreamStart) -> None:
        if start.first_segment:
            self._streams[start.xid] = StreamedTransaction(start.xid, self._spool.stage)
        self._block = self._stream(start.xid)

    def _abort(self, abort: m.StreamAbort) -> None:
        stream = self._streams.get(abort.xid)
        if stream is None:
            # Postgres 18 does not send what it finds aborted already, but tells of the savepoints all the same.
            return
        if abort.xid == abort.subxid:
            stream.discard()
            del self._streams[abort.xid]
        else:
            stream.abort(abort.subxid)

    def _commit(self, commit: m.StreamCommit) -> None:
        """Replay the transaction as if it had been sent now, in one piece."""
        stream = self._stream(commit.xid)
        relations = dict(self._relations)
        # Held back until there is a change: a transaction all of whose savepoints were rolled back is none at all.
        waiting = [
            Piece.of_messages([begin_message(commit.commit_lsn, commit.commit_time, commit.xid)], commit.commit_lsn)
        ]
        begun = False
        for piece in stream.pieces():
            waiting.append(piece)
            begun = begun or piece.change_count() > 0
            if begun:
                for each in waiting:
                    self._writer.append(each, dict(relations), None)
                    relations.update((int.from_bytes(r[1:5], "big"), r) for r in each.messages(Kind.RELATION))
                waiting.clear()
        if begun:
            end = commit_message(0, commit.commit_lsn, commit.end_lsn, commit.commit_time)
            self._writer.append(Piece.of_messages([end], commit.commit_lsn), relations, commit.end_lsn)
        del self._streams[commit.xid]
        self._settle_relations(stream, commit.end_lsn)
        stream.discard()

    def _settle_relations(self, stream: StreamedTransaction, end: Lsn) -> None:
        """What the transaction announced holds from now on, unless a newer announcement overtook it meanwhile."""
        for oid, (arrival, message) in stream.relations.items():
            if arrival > self._arrivals.get(oid, 0):
                self._learn(oid, message, arrival)
            elif self._relations[oid] != message:
                # Only readers of the same segment can have seen the older one; it is told again behind it.
                newer = Piece.of_messages([self._relations[oid]], end)
                self._writer.append(newer, self._relations, end)

    def _stream(self, xid: int) -> StreamedTransaction:
        try:
            return self._streams[xid]
        except KeyError:
            raise ProtocolError(
                f"the server speaks of the streamed transaction {xid}, which it never started"
            ) from None

    def _learn(self, oid: int, message: bytes, arrival: int) -> None:
        self._relations = {**self._relations, oid: message}
        self._arrivals[oid] = arrival

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def _end_of(payload: bytes) -> Lsn:
    """Where a transaction, or a message outside any, ends: reading from there on does not bring it again."""
    message = decode(payload)
    if isinstance(message, m.Commit):
        return message.end_lsn
    assert isinstance(message, m.LogicalMessage)
    return message.lsn
