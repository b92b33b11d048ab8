"""Makes what a walsender sends, without one."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.pgoutput.encoder import begin_message, commit_message
from headrace.replication.chunk import Kind
from headrace.spool import Spool


def relation(oid: int, name: bytes = b"t", columns: int = 1) -> bytes:
    described = b"".join(b"\1c%d\0" % n + struct.pack(">Ii", 23, -1) for n in range(columns))
    return b"R" + struct.pack(">I", oid) + b"public\0" + name + b"\0d" + struct.pack(">H", columns) + described


def insert(oid: int, value: bytes) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + struct.pack(">H", 1) + b"t" + struct.pack(">I", len(value)) + value


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(">IB", len(oids), 0) + b"".join(struct.pack(">I", oid) for oid in oids)


def logical_message(lsn: int, *, transactional: bool, content: bytes = b"x", prefix: bytes = b"p") -> bytes:
    return b"M" + struct.pack(">BQ", transactional, lsn) + prefix + b"\0" + struct.pack(">I", len(content)) + content


def begin(commit_lsn: int, xid: int) -> bytes:
    return begin_message(commit_lsn, 1000 + xid, xid)


def commit(commit_lsn: int, xid: int) -> bytes:
    return commit_message(0, commit_lsn, commit_lsn + 8, 1000 + xid)


def stream_start(xid: int, *, first: bool) -> bytes:
    return b"S" + struct.pack(">IB", xid, first)


def stream_commit(commit_lsn: int, xid: int) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, commit_lsn, commit_lsn + 8, 1000 + xid)


def stream_abort(xid: int, subxid: int) -> bytes:
    return b"A" + struct.pack(">II", xid, subxid)


STREAM_STOP = b"E"


def streamed(message: bytes, xid: int) -> bytes:
    """The same message as it looks inside a stream block."""
    return message[:1] + struct.pack(">I", xid) + message[1:]


def keepalive(wal_end: int, *, reply: bool = False) -> bytes:
    return b"k" + struct.pack(">QqB", wal_end, 0, reply)


def xlog(payload: bytes, lsn: int = 1) -> bytes:
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + payload


@dataclass
class Spooled:
    """What a spool holds, transaction by transaction."""

    transactions: list[list[bytes]] = field(default_factory=list)
    schema_of: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Each row change with the Relation message in force for it, in its own segment."""
    outside: list[bytes] = field(default_factory=list)


def spooled(spool: Spool) -> Spooled:
    """Read a spool back, checking that every segment can be read on its own."""
    found = Spooled()
    for segment in spool.segments():
        for name in segment.names:
            batch = spool.read(name)
            relations: dict[bytes, bytes] = {}
            index = spool.index(name)
            rows: Counter[int] = Counter()
            continues = index.first_ordinal > 0 or name.part > 1
            ordinal: int | None = None
            for message in (batch.message(i) for i in range(len(batch))):
                kind = message[0]
                if kind == Kind.RELATION:
                    relations[message[1:5]] = message
                elif kind == Kind.BEGIN:
                    if continues:
                        # The repeated Begin must be that of the transaction, and the ordinal must fit.
                        assert found.transactions[-1][0] == message
                        changes = [m for m in found.transactions[-1] if m[0] in b"IUDTM"]
                        assert len(changes) == index.first_ordinal
                        continues = False
                    else:
                        found.transactions.append([message])
                    ordinal = 0
                elif ordinal is None:
                    found.outside.append(message)
                else:
                    found.transactions[-1].append(message)
                    if kind in b"IUD":
                        found.schema_of.append((message, relations[message[1:5]]))
                        rows[int.from_bytes(message[1:5], "big")] += 1
                    if kind == Kind.COMMIT:
                        ordinal = None
            assert {oid: table.rows for oid, table in index.tables.items() if table.rows} == dict(rows)
    return found


def contents(payloads: Sequence[bytes]) -> list[bytes]:
    return [xlog(payload, n + 1) for n, payload in enumerate(payloads)]
