from __future__ import annotations

import struct

import pytest

from headrace.errors import ProtocolError
from headrace.events import UNCHANGED
from headrace.lsn import Lsn
from headrace.pgoutput import messages as m
from headrace.pgoutput.decoder import decode
from headrace.schema import ReplicaIdentity

# Written by hand from Postgres's protocol documentation, so that decoder and encoder cannot be wrong together.
TUPLE = b"\x00\x04" + b"n" + b"u" + b"t\x00\x00\x00\x02hi" + b"t\x00\x00\x00\x01\xff"
VALUES = (None, UNCHANGED, m.Text(b"hi"), m.Text(b"\xff"))
LSN, LSN_BYTES = Lsn.parse("16/B374D848"), bytes.fromhex("00000016b374d848")
TIME, TIME_BYTES = 1_000_000, bytes.fromhex("00000000000f4240")
PREPARED = b"\0" + LSN_BYTES * 2 + TIME_BYTES + b"\0\0\0\x07gid\0"

PLAIN = [
    (b"B" + LSN_BYTES + TIME_BYTES + b"\0\0\x02\xe6", m.Begin(LSN, TIME, 742)),
    (b"C\0" + LSN_BYTES * 2 + TIME_BYTES, m.Commit(LSN, LSN, TIME)),
    (b"O" + LSN_BYTES + b"elsewhere\0", m.Origin(LSN, "elsewhere")),
    (
        b"R\0\0\x40\x01public\0t\xc3\xa4\0d\0\x02"
        b"\x01id\0\0\0\0\x17\xff\xff\xff\xff" b"\0n\0\0\0\x06\xa4\0\x08\0\x06",
        m.Relation(
            16385, "public", "tä", ReplicaIdentity.DEFAULT,
            (m.RelationColumn(True, "id", 23, -1), m.RelationColumn(False, "n", 1700, 0x80006)),
        ),
    ),
    (b"R\0\0\0\x01\0r\0f\0\0", m.Relation(1, "", "r", ReplicaIdentity.FULL, ())),
    (b"Y\0\0\x40\x02public\0mood\0", m.Type(16386, "public", "mood")),
    (b"I\0\0\x40\x01N" + TUPLE, m.Insert(16385, VALUES)),
    (b"U\0\0\x40\x01N" + TUPLE, m.Update(16385, None, VALUES)),
    (b"U\0\0\x40\x01K" + TUPLE + b"N" + TUPLE, m.Update(16385, m.OldTuple("K", VALUES), VALUES)),
    (b"U\0\0\x40\x01O" + TUPLE + b"N" + TUPLE, m.Update(16385, m.OldTuple("O", VALUES), VALUES)),
    (b"D\0\0\x40\x01K" + TUPLE, m.Delete(16385, m.OldTuple("K", VALUES))),
    (b"D\0\0\x40\x01O\0\0", m.Delete(16385, m.OldTuple("O", ()))),
    (b"T\0\0\0\x02\x03\0\0\0\x01\0\0\0\x02", m.Truncate((1, 2), cascade=True, restart_identity=True)),
    (b"T\0\0\0\x01\x02\0\0\0\x01", m.Truncate((1,), cascade=False, restart_identity=True)),
    (b"M\x01" + LSN_BYTES + b"pre\0\0\0\0\x03abc", m.LogicalMessage(True, LSN, "pre", b"abc")),
    (b"M\0" + LSN_BYTES + b"\0\0\0\0\0", m.LogicalMessage(False, LSN, "", b"")),
    (b"S\0\0\0\x07\x01", m.StreamStart(7, first_segment=True)),
    (b"E", m.StreamStop()),
    (b"c\0\0\0\x07\0" + LSN_BYTES * 2 + TIME_BYTES, m.StreamCommit(7, LSN, LSN, TIME)),
    (b"A\0\0\0\x07\0\0\0\x08", m.StreamAbort(7, 8)),
    (b"A\0\0\0\x07\0\0\0\x08" + LSN_BYTES + TIME_BYTES, m.StreamAbort(7, 8, LSN, TIME)),
    (b"b" + PREPARED[1:], m.BeginPrepare(LSN, LSN, TIME, 7, "gid")),
    (b"P" + PREPARED, m.Prepare(LSN, LSN, TIME, 7, "gid")),
    (b"K" + PREPARED, m.CommitPrepared(LSN, LSN, TIME, 7, "gid")),
    (b"p" + PREPARED, m.StreamPrepare(LSN, LSN, TIME, 7, "gid")),
    (
        b"r\0" + LSN_BYTES * 2 + TIME_BYTES * 2 + b"\0\0\0\x07gid\0",
        m.RollbackPrepared(LSN, LSN, TIME, TIME, 7, "gid"),
    ),
]  # fmt: skip
CHANGE_KINDS = b"RYIUDTM"


@pytest.mark.parametrize(("payload", "message"), PLAIN, ids=lambda value: type(value).__name__)
def test_every_kind(payload: bytes, message: m.Message) -> None:
    assert decode(payload) == message


@pytest.mark.parametrize("payload", [payload for payload, _ in PLAIN if payload[0] in CHANGE_KINDS])
def test_changes_in_a_stream_block_carry_their_xid(payload: bytes) -> None:
    streamed = decode(payload[:1] + b"\0\0\0\x09" + payload[1:], streamed=True)
    assert streamed.xid == 9  # type: ignore[union-attr]
    assert type(streamed) is type(decode(payload))


@pytest.mark.parametrize("payload", [payload for payload, _ in PLAIN if payload[0] not in CHANGE_KINDS])
def test_other_messages_are_the_same_in_a_stream_block(payload: bytes) -> None:
    assert decode(payload, streamed=True) == decode(payload)


@pytest.mark.parametrize("payload", [payload for payload, _ in PLAIN], ids=lambda payload: payload[:1].decode())
def test_every_cut_and_every_extra_byte_is_malformed(payload: bytes) -> None:
    whole_abort = 9
    for size in range(len(payload)):
        if payload[:1] == b"A" and size == whole_abort:
            continue
        with pytest.raises(ProtocolError):
            decode(payload[:size])
    if payload[:1] == b"T":
        with pytest.raises(ProtocolError):
            decode(payload + b"\0\0\0\x01")
    with pytest.raises(ProtocolError):
        decode(payload + b"\0")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"Z",
        b"C\x01" + LSN_BYTES * 2 + TIME_BYTES,
        b"M\x02" + LSN_BYTES + b"\0\0\0\0\0",
        b"M\x01" + LSN_BYTES + b"p\0\xff\xff\xff\xff",
        b"S\0\0\0\x07\x02",
        b"T\xff\xff\xff\xff\0",
        b"T\0\0\0\x01\x04\0\0\0\x01",
        b"R\0\0\0\x01\0r\0x\0\0",
        b"R\0\0\0\x01\0r\0f\xff\xff",
        b"R\0\0\0\x01\0\xff\xfe\0f\0\0",
        b"R\0\0\0\x01\0r\0f\0\x01\x02id\0\0\0\0\x17\xff\xff\xff\xff",
        b"I\0\0\0\x01K\0\0",
        b"I\0\0\0\x01N\0\x01x",
        b"I\0\0\0\x01N\0\x01t\xff\xff\xff\xff",
        b"I\0\0\0\x01N\x80\0",
        b"U\0\0\0\x01D\0\0",
        b"U\0\0\0\x01K\0\0K\0\0",
        b"D\0\0\0\x01N\0\0",
        b"K\x01" + PREPARED[1:],
        b"r\x01" + LSN_BYTES * 2 + TIME_BYTES * 2 + b"\0\0\0\x07gid\0",
        b"c\0\0\0\x07\x01" + LSN_BYTES * 2 + TIME_BYTES,
    ],
)
def test_malformed(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(payload)


def test_an_error_shows_no_value() -> None:
    secret = b"I\0\0\0\x01N\0\x02t" + struct.pack(">i", 6) + b"secretx"
    with pytest.raises(ProtocolError) as caught:
        decode(secret)
    assert "secret" not in str(caught.value)
