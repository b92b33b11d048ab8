"""The oracle for the receiver: the same changes through a second slot, read by Postgres's own `pg_recvlogical`."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator

import psycopg

from headrace.lsn import Lsn
from headrace.spool import Spool
from headrace.testing import PostgresServer


def current_lsn(connection: psycopg.Connection[object]) -> Lsn:
    """The end of WAL, all of it flushed: decoding sees nothing else."""
    connection.execute("SELECT pg_logical_emit_message(true, 'flush', '')")
    row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])  # type: ignore[index]


def transactions_by_pg_recvlogical(
    server: PostgresServer, conninfo: str, slot: str, publication: str, end: Lsn
) -> dict[int, list[bytes]]:
    """Commit LSN to the transaction's messages, without Relation and Type (which are sent once per connection)."""
    output = subprocess.run(
        [
            *(str(server.bin / "pg_recvlogical"), "--start", f"--slot={slot}", f"--dbname={conninfo}"),
            *(f"--endpos={end}", "--file=-", "--fsync-interval=0", "--option=proto_version=1"),
            *("--option=messages=true", f"--option=publication_names={publication}"),
        ],
        check=True,
        capture_output=True,
        timeout=300,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    found: dict[int, list[bytes]] = {}
    current: list[bytes] | None = None
    for message in split(output):
        if message[:1] == b"B":
            current = found[int.from_bytes(message[1:9], "big")] = []
        if current is not None and message[:1] not in b"RYO":
            current.append(message)
        if message[:1] == b"C":
            current = None
    assert current is None, "pg_recvlogical stopped inside a transaction"
    return _with_changes(found)


def transactions_in_spool(spool: Spool) -> dict[int, list[bytes]]:
    """The same from a spool; a transaction that stands in it twice fails here."""
    found: dict[int, list[bytes]] = {}
    current: list[bytes] | None = None
    for segment in spool.segments():
        for name in segment.names:
            batch = spool.read(name)
            for message in (batch.message(i) for i in range(len(batch))):
                kind = message[:1]
                if kind == b"B" and name.part > 1 and current is not None and current[0] == message:
                    continue  # a part repeats the Begin of the transaction it continues
                if kind == b"B":
                    assert current is None, "a transaction begins inside another"
                    commit_lsn = int.from_bytes(message[1:9], "big")
                    assert commit_lsn not in found, f"transaction {Lsn(commit_lsn)} is in the spool twice"
                    assert segment.start <= commit_lsn < segment.end
                    current = found[commit_lsn] = []
                if current is not None and kind not in b"RYO":
                    current.append(message)
                if kind == b"C":
                    current = None
    assert current is None, "the spool ends inside a transaction"
    return _with_changes(found)


def _with_changes(transactions: dict[int, list[bytes]]) -> dict[int, list[bytes]]:
    """Up to Postgres 14 the server also sends transactions with nothing in them; they mean nothing to anyone."""
    return {commit_lsn: messages for commit_lsn, messages in transactions.items() if len(messages) > 2}


def split(output: bytes) -> Iterator[bytes]:
    """Cut the concatenated output into messages; `pg_recvlogical` puts a newline behind each."""
    at = 0
    while at < len(output):
        end = _end(output, at)
        assert output[end : end + 1] == b"\n"
        yield output[at:end]
        at = end + 1


def _end(data: bytes, at: int) -> int:
    kind = data[at : at + 1]
    if kind in b"BC":
        return at + (21 if kind == b"B" else 26)
    if kind in b"ID":
        return _tuple_end(data, at + 6)
    if kind == b"U":
        return _update_end(data, at + 5)
    if kind == b"T":
        return int(at + 6 + 4 * struct.unpack_from(">I", data, at + 1)[0])
    if kind == b"M":
        prefix_end = data.index(b"\0", at + 10) + 1
        return int(prefix_end + 4 + struct.unpack_from(">I", data, prefix_end)[0])
    if kind in b"YO":
        return _names_end(data, at + 5, 2) if kind == b"Y" else _names_end(data, at + 9, 1)
    assert kind == b"R", f"unknown message {kind!r}"
    return _relation_end(data, at)


def _update_end(data: bytes, at: int) -> int:
    if data[at : at + 1] in (b"K", b"O"):
        at = _tuple_end(data, at + 1)
    assert data[at : at + 1] == b"N"
    return _tuple_end(data, at + 1)


def _relation_end(data: bytes, at: int) -> int:
    end = _names_end(data, at + 5, 2) + 1
    (columns,) = struct.unpack_from(">H", data, end)
    end += 2
    for _ in range(columns):
        end = _names_end(data, end + 1, 1) + 8
    return end


def _names_end(data: bytes, at: int, names: int) -> int:
    for _ in range(names):
        at = data.index(b"\0", at) + 1
    return at


def _tuple_end(data: bytes, at: int) -> int:
    (columns,) = struct.unpack_from(">H", data, at)
    at += 2
    for _ in range(columns):
        kind = data[at : at + 1]
        at += 1
        if kind in (b"t", b"b"):
            at += 4 + struct.unpack_from(">I", data, at)[0]
    return at
