"""What travels inside CopyData on a replication connection: WAL data and keepalives in, status updates out."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from ..errors import ProtocolError
from ..lsn import Lsn

__all__ = ["XLOG_DATA_HEADER", "Keepalive", "StreamMessage", "XLogData", "read_stream_message", "standby_status_update"]

XLOG_DATA_HEADER = Struct(">cQQq")
"""'w', start LSN, the server's end of WAL, its clock; the output plugin's message follows."""

_KEEPALIVE = Struct(">cQqB")
_STATUS_UPDATE = Struct(">cQQQqB")


@dataclass(frozen=True, slots=True)
class XLogData:
    start_lsn: Lsn
    wal_end: Lsn
    send_time: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    """`wal_end` is how far the server has read WAL for this slot: all changes before it have been sent."""

    wal_end: Lsn
    send_time: int
    reply_requested: bool


StreamMessage = XLogData | Keepalive


def read_stream_message(data: bytes) -> StreamMessage:
    """Read one CopyData content; ProtocolError for anything a walsender does not send."""
    kind = data[:1]
    if kind == b"w" and len(data) >= XLOG_DATA_HEADER.size:
        _, start, end, time = XLOG_DATA_HEADER.unpack_from(data)
        return XLogData(Lsn(start), Lsn(end), time, data[XLOG_DATA_HEADER.size :])
    if kind == b"k" and len(data) == _KEEPALIVE.size:
        _, end, time, reply = _KEEPALIVE.unpack(data)
        if reply in (0, 1):
            return Keepalive(Lsn(end), time, reply == 1)
    msg = f"malformed replication message of kind {kind.decode('latin-1')!r}"
    raise ProtocolError(msg, detail=f"{len(data)} bytes")


def standby_status_update(written: int, flushed: int, applied: int, now: int, *, reply: bool = False) -> bytes:
    """Tell the server how far we are; it may drop WAL before `flushed`. `now` is on Postgres's clock."""
    return _STATUS_UPDATE.pack(b"r", written, flushed, applied, now, reply)
