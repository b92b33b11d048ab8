"""pgoutput messages back to bytes, as the server would have sent them.

The receiver writes Begin and Commit around the changes of a streamed transaction, which the server sends without them;
tests and benchmarks write every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

from ..events import Unchanged
from . import messages as m

__all__ = ["begin_message", "commit_message", "encode"]

_BEGIN = Struct(">cQqI")
_COMMIT = Struct(">cBQQq")
_UINT16 = Struct(">H")
_UINT32 = Struct(">I")
_UINT64 = Struct(">Q")


def begin_message(final_lsn: int, commit_time: int, xid: int) -> bytes:
    return _BEGIN.pack(b"B", final_lsn, commit_time, xid)


def commit_message(flags: int, commit_lsn: int, end_lsn: int, commit_time: int) -> bytes:
    return _COMMIT.pack(b"C", flags, commit_lsn, end_lsn, commit_time)


def encode(message: m.Message) -> bytes:
    """The inverse of `decode`. A change with an xid is one from inside a stream block."""
    return _ENCODERS[type(message)](message)


def _head(kind: bytes, xid: int | None) -> bytes:
    return kind if xid is None else kind + _UINT32.pack(xid)


def _name(text: str) -> bytes:
    return text.encode() + b"\0"


def _value(value: m.TupleValue) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, Unchanged):
        return b"u"
    return b"t" + _UINT32.pack(len(value.data)) + value.data


def _tuple(marker: bytes, values: m.TupleData) -> bytes:
    return marker + _UINT16.pack(len(values)) + b"".join(map(_value, values))


def _old(old: m.OldTuple | None) -> bytes:
    return b"" if old is None else _tuple(old.kind.encode(), old.values)


def _relation(r: m.Relation) -> bytes:
    columns = b"".join(
        bytes([column.key]) + _name(column.name) + Struct(">Ii").pack(column.type_oid, column.typmod)
        for column in r.columns
    )
    names = _UINT32.pack(r.relation_id) + _name(r.namespace) + _name(r.name)
    return _head(b"R", r.xid) + names + r.replica_identity.value.encode() + _UINT16.pack(len(r.columns)) + columns


def _type(t: m.Type) -> bytes:
    return _head(b"Y", t.xid) + _UINT32.pack(t.type_oid) + _name(t.namespace) + _name(t.name)


def _insert(i: m.Insert) -> bytes:
    return _head(b"I", i.xid) + _UINT32.pack(i.relation_id) + _tuple(b"N", i.new)


def _update(u: m.Update) -> bytes:
    return _head(b"U", u.xid) + _UINT32.pack(u.relation_id) + _old(u.old) + _tuple(b"N", u.new)


def _delete(d: m.Delete) -> bytes:
    return _head(b"D", d.xid) + _UINT32.pack(d.relation_id) + _old(d.old)


def _truncate(t: m.Truncate) -> bytes:
    options = t.cascade | t.restart_identity << 1
    counts = Struct(">IB").pack(len(t.relation_ids), options)
    return _head(b"T", t.xid) + counts + b"".join(map(_UINT32.pack, t.relation_ids))


def _logical_message(message: m.LogicalMessage) -> bytes:
    position = Struct(">BQ").pack(message.transactional, message.lsn)
    content = _UINT32.pack(len(message.content)) + message.content
    return _head(b"M", message.xid) + position + _name(message.prefix) + content


def _stream_commit(c: m.StreamCommit) -> bytes:
    return Struct(">cIBQQq").pack(b"c", c.xid, 0, c.commit_lsn, c.end_lsn, c.commit_time)


def _stream_abort(a: m.StreamAbort) -> bytes:
    if a.abort_lsn is None or a.abort_time is None:
        return Struct(">cII").pack(b"A", a.xid, a.subxid)
    return Struct(">cIIQq").pack(b"A", a.xid, a.subxid, a.abort_lsn, a.abort_time)


def _begin_prepare(p: m.BeginPrepare) -> bytes:
    return Struct(">cQQqI").pack(b"b", p.prepare_lsn, p.end_lsn, p.prepare_time, p.xid) + _name(p.gid)


def _prepared(kind: bytes, p: m.Prepare | m.StreamPrepare) -> bytes:
    return Struct(">cBQQqI").pack(kind, 0, p.prepare_lsn, p.end_lsn, p.prepare_time, p.xid) + _name(p.gid)


def _commit_prepared(c: m.CommitPrepared) -> bytes:
    return Struct(">cBQQqI").pack(b"K", 0, c.commit_lsn, c.end_lsn, c.commit_time, c.xid) + _name(c.gid)


def _rollback_prepared(r: m.RollbackPrepared) -> bytes:
    times = (r.prepare_time, r.rollback_time)
    fixed = Struct(">cBQQqqI").pack(b"r", 0, r.prepare_end_lsn, r.rollback_end_lsn, *times, r.xid)
    return fixed + _name(r.gid)


_ENCODERS: Mapping[type, Callable[[Any], bytes]] = {
    m.Begin: lambda b: begin_message(b.final_lsn, b.commit_time, b.xid),
    m.Commit: lambda c: commit_message(0, c.commit_lsn, c.end_lsn, c.commit_time),
    m.Origin: lambda o: b"O" + _UINT64.pack(o.commit_lsn) + _name(o.name),
    m.Relation: _relation,
    m.Type: _type,
    m.Insert: _insert,
    m.Update: _update,
    m.Delete: _delete,
    m.Truncate: _truncate,
    m.LogicalMessage: _logical_message,
    m.StreamStart: lambda s: Struct(">cIB").pack(b"S", s.xid, s.first_segment),
    m.StreamStop: lambda _: b"E",
    m.StreamCommit: _stream_commit,
    m.StreamAbort: _stream_abort,
    m.BeginPrepare: _begin_prepare,
    m.Prepare: lambda p: _prepared(b"P", p),
    m.CommitPrepared: _commit_prepared,
    m.RollbackPrepared: _rollback_prepared,
    m.StreamPrepare: lambda p: _prepared(b"p", p),
}
