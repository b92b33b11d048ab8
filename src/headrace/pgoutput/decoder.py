"""One pgoutput message from its bytes. Stateless: the caller knows whether it stands inside a stream block.

Anything that no server sends (cut short, bytes left over, an unknown kind, count, flag or name) raises ProtocolError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

from ..errors import ProtocolError
from ..events import UNCHANGED
from ..lsn import Lsn
from ..schema import ReplicaIdentity
from . import messages as m

__all__ = ["decode"]

_INT8 = Struct(">B")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_LSN = Struct(">Q")
_BEGIN = Struct(">QqI")
_COMMIT = Struct(">BQQq")
_STREAM_COMMIT = Struct(">IBQQq")
_TWO_XIDS = Struct(">II")
_ABORT = Struct(">Qq")
_BEGIN_PREPARE = Struct(">QQqI")
_PREPARE = Struct(">BQQqI")
_ROLLBACK_PREPARED = Struct(">BQQqqI")
_STREAM_START = Struct(">IB")
_COLUMN_TYPE = Struct(">Ii")
_TRUNCATE = Struct(">iB")
_MESSAGE = Struct(">BQ")


class _Reader:
    """Walks one message; every step past its end raises."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 1

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        start, self.at = self.at, self.at + layout.size
        if self.at > len(self.data):
            raise self.malformed("it is cut short")
        return layout.unpack_from(self.data, start)

    def one(self, layout: Struct) -> int:
        value: int = self.unpack(layout)[0]
        return value

    def raw(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if size < 0 or self.at > len(self.data):
            raise self.malformed("a length points past its end")
        return self.data[start : self.at]

    def text(self) -> str:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise self.malformed("a name has no end")
        start, self.at = self.at, end + 1
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError:
            raise self.malformed("a name is not UTF-8") from None

    def flag(self, value: int) -> bool:
        if value not in (0, 1):
            raise self.malformed("a flag has an unknown value")
        return value == 1

    def no_flags(self, value: int) -> None:
        if value != 0:
            raise self.malformed("a flag has an unknown value")

    @property
    def at_end(self) -> bool:
        return self.at == len(self.data)

    def malformed(self, why: str) -> ProtocolError:
        kind = chr(self.data[0])
        return ProtocolError(f"malformed pgoutput message of kind {kind!r}", detail=f"{why} (byte {self.at})")


def decode(payload: bytes, *, streamed: bool = False) -> m.Message:
    """Decode one message; `streamed`: it stands between Stream Start and Stream Stop, where changes carry an xid."""
    if not payload:
        msg = "empty pgoutput message"
        raise ProtocolError(msg)
    reader = _Reader(payload)
    kind = payload[0]
    change = _CHANGES.get(kind)
    message: m.Message
    if change is not None:
        message = change(reader, reader.one(_UINT32) if streamed else None)
    elif kind in _CONTROLS:
        message = _CONTROLS[kind](reader)
    else:
        msg = f"unknown pgoutput message kind {chr(kind)!r}"
        raise ProtocolError(msg)
    if not reader.at_end:
        raise reader.malformed("bytes are left over")
    return message


def _begin(reader: _Reader) -> m.Begin:
    lsn, time, xid = reader.unpack(_BEGIN)
    return m.Begin(Lsn(lsn), time, xid)


def _commit(reader: _Reader) -> m.Commit:
    flags, commit, end, time = reader.unpack(_COMMIT)
    reader.no_flags(flags)
    return m.Commit(Lsn(commit), Lsn(end), time)


def _origin(reader: _Reader) -> m.Origin:
    return m.Origin(Lsn(reader.one(_LSN)), reader.text())


def _relation(reader: _Reader, xid: int | None) -> m.Relation:
    relation_id, namespace, name = reader.one(_UINT32), reader.text(), reader.text()
    identity = chr(reader.one(_INT8))
    if identity not in {known.value for known in ReplicaIdentity}:
        raise reader.malformed("unknown replica identity")
    columns = tuple(_column(reader) for _ in range(_column_count(reader)))
    return m.Relation(relation_id, namespace, name, ReplicaIdentity(identity), columns, xid)


def _column(reader: _Reader) -> m.RelationColumn:
    key, name = reader.flag(reader.one(_INT8)), reader.text()
    return m.RelationColumn(key, name, *reader.unpack(_COLUMN_TYPE))


def _column_count(reader: _Reader) -> int:
    count = reader.one(_INT16)
    if count < 0:
        raise reader.malformed("a negative number of columns")
    return count


def _type(reader: _Reader, xid: int | None) -> m.Type:
    return m.Type(reader.one(_UINT32), reader.text(), reader.text(), xid)


def _tuple(reader: _Reader) -> m.TupleData:
    return tuple(_value(reader) for _ in range(_column_count(reader)))


def _value(reader: _Reader) -> m.TupleValue:
    kind = reader.raw(1)
    if kind == b"t":
        return m.Text(reader.raw(reader.one(_INT32)))
    if kind == b"n":
        return None
    if kind == b"u":
        return UNCHANGED
    raise reader.malformed("unknown value format")


def _insert(reader: _Reader, xid: int | None) -> m.Insert:
    relation_id = reader.one(_UINT32)
    if reader.raw(1) != b"N":
        raise reader.malformed("a new row was expected")
    return m.Insert(relation_id, _tuple(reader), xid)


def _update(reader: _Reader, xid: int | None) -> m.Update:
    relation_id, marker = reader.one(_UINT32), reader.raw(1)
    old = None
    if marker in (b"K", b"O"):
        old = m.OldTuple(marker.decode(), _tuple(reader))
        marker = reader.raw(1)
    if marker != b"N":
        raise reader.malformed("a new row was expected")
    return m.Update(relation_id, old, _tuple(reader), xid)


def _delete(reader: _Reader, xid: int | None) -> m.Delete:
    relation_id, marker = reader.one(_UINT32), reader.raw(1)
    if marker not in (b"K", b"O"):
        raise reader.malformed("an old row or key was expected")
    return m.Delete(relation_id, m.OldTuple(marker.decode(), _tuple(reader)), xid)


def _truncate(reader: _Reader, xid: int | None) -> m.Truncate:
    count, options = reader.unpack(_TRUNCATE)
    if count < 0 or len(reader.data) - reader.at != 4 * count:
        raise reader.malformed("the number of tables is wrong")
    if options & ~3:
        raise reader.malformed("a flag has an unknown value")
    relation_ids = tuple(reader.one(_UINT32) for _ in range(count))
    return m.Truncate(relation_ids, bool(options & 1), bool(options & 2), xid)


def _logical_message(reader: _Reader, xid: int | None) -> m.LogicalMessage:
    flags, lsn = reader.unpack(_MESSAGE)
    prefix = reader.text()
    return m.LogicalMessage(reader.flag(flags), Lsn(lsn), prefix, reader.raw(reader.one(_INT32)), xid)


def _stream_start(reader: _Reader) -> m.StreamStart:
    xid, first = reader.unpack(_STREAM_START)
    return m.StreamStart(xid, reader.flag(first))


def _stream_stop(_: _Reader) -> m.StreamStop:
    return m.StreamStop()


def _stream_commit(reader: _Reader) -> m.StreamCommit:
    xid, flags, commit, end, time = reader.unpack(_STREAM_COMMIT)
    reader.no_flags(flags)
    return m.StreamCommit(xid, Lsn(commit), Lsn(end), time)


def _stream_abort(reader: _Reader) -> m.StreamAbort:
    xid, subxid = reader.unpack(_TWO_XIDS)
    if reader.at_end:
        return m.StreamAbort(xid, subxid)
    lsn, time = reader.unpack(_ABORT)
    return m.StreamAbort(xid, subxid, Lsn(lsn), time)


def _begin_prepare(reader: _Reader) -> m.BeginPrepare:
    prepare, end, time, xid = reader.unpack(_BEGIN_PREPARE)
    return m.BeginPrepare(Lsn(prepare), Lsn(end), time, xid, reader.text())


def _prepared(reader: _Reader) -> tuple[Lsn, Lsn, int, int, str]:
    """Prepare, Commit Prepared and Stream Prepare have one layout."""
    flags, lsn, end, time, xid = reader.unpack(_PREPARE)
    reader.no_flags(flags)
    return Lsn(lsn), Lsn(end), time, xid, reader.text()


def _rollback_prepared(reader: _Reader) -> m.RollbackPrepared:
    flags, prepare_end, rollback_end, prepare_time, rollback_time, xid = reader.unpack(_ROLLBACK_PREPARED)
    reader.no_flags(flags)
    return m.RollbackPrepared(Lsn(prepare_end), Lsn(rollback_end), prepare_time, rollback_time, xid, reader.text())


_CHANGES: Mapping[int, Callable[[_Reader, int | None], m.Message]] = {
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _logical_message,
}

_CONTROLS: Mapping[int, Callable[[_Reader], m.Message]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("S"): _stream_start,
    ord("E"): _stream_stop,
    ord("c"): _stream_commit,
    ord("A"): _stream_abort,
    ord("b"): _begin_prepare,
    ord("P"): lambda reader: m.Prepare(*_prepared(reader)),
    ord("K"): lambda reader: m.CommitPrepared(*_prepared(reader)),
    ord("p"): lambda reader: m.StreamPrepare(*_prepared(reader)),
    ord("r"): _rollback_prepared,
}
