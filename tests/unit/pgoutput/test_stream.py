from __future__ import annotations

import pytest

from headrace.errors import ProtocolError
from headrace.lsn import Lsn
from headrace.pgoutput.stream import (
    XLOG_DATA_HEADER,
    Keepalive,
    XLogData,
    read_stream_message,
    standby_status_update,
)

WAL_DATA = b"w" + bytes.fromhex("000000000000001000000000000000200000000000000003") + b"payload"
KEEPALIVE = b"k" + bytes.fromhex("0000000000000020ffffffffffffffff01")


def test_wal_data() -> None:
    assert XLOG_DATA_HEADER.size == 25
    assert read_stream_message(WAL_DATA) == XLogData(Lsn(0x10), Lsn(0x20), 3, b"payload")


def test_keepalive() -> None:
    assert read_stream_message(KEEPALIVE) == Keepalive(Lsn(0x20), -1, reply_requested=True)


@pytest.mark.parametrize(
    "data", [b"", b"x", WAL_DATA[:24], KEEPALIVE[:-1], KEEPALIVE + b"\0", KEEPALIVE[:-1] + b"\x02"]
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_stream_message(data)


def test_status_update_is_34_bytes_in_the_order_of_the_protocol() -> None:
    update = standby_status_update(1, 2, 3, 4, reply=True)
    numbers = "0000000000000001000000000000000200000000000000030000000000000004"
    assert update == b"r" + bytes.fromhex(numbers) + b"\x01"
    assert standby_status_update(1, 2, 3, 4)[-1] == 0
