"""Types of Postgres's own workings."""

from __future__ import annotations

import pyarrow as pa

from headrace.pgtypes.system import print_char, print_lsn, print_tid, print_xid, print_xid8


def test_char() -> None:
    assert print_char(pa.array([b"\0", b"a", b"\\", b"\xe9"])).to_pylist() == ["", "a", "\\", "\\351"]


def test_transaction_ids() -> None:
    assert print_xid(pa.array([b"\0\0\0\7", b"\xff" * 4])).to_pylist() == ["7", "4294967295"]
    assert print_xid8(pa.array([b"\0" * 7 + b"\7", b"\xff" * 8])).to_pylist() == ["7", "18446744073709551615"]


def test_tid() -> None:
    assert print_tid(pa.array([b"\0\0\0\1\0\2", b"\xff" * 6])).to_pylist() == ["(1,2)", "(4294967295,65535)"]


def test_lsn() -> None:
    values = [0, 1 << 32, 0x16B374D848, 2**64 - 1]
    texts = ["0/0", "1/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"]
    assert print_lsn(pa.array([value.to_bytes(8, "big") for value in values])).to_pylist() == texts
