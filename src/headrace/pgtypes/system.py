"""Types of Postgres's own workings that a table may have: "char", xid, cid, xid8, tid, pg_lsn. All are kept as their
text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .layout import Bytes, fixed_width
from .printing import choose, digits, hexadecimal, join, kept

__all__ = ["print_char", "print_lsn", "print_tid", "print_xid", "print_xid8"]


def print_char(values: pa.BinaryArray) -> pa.StringArray:
    """One byte: zero is the empty text, a byte beyond ASCII is printed in octal."""
    code = fixed_width(values, "u1", '"char"')
    ascii_text = kept(code[:, None], np.asarray((code > 0) & (code < 128))[:, None])
    octal = join("\\", digits(code >> 6), digits((code >> 3) & 7), digits(code & 7))
    return choose(code < 128, ascii_text, octal)


def print_xid(values: pa.BinaryArray) -> pa.StringArray:
    return digits(fixed_width(values, ">u4", "xid").astype(np.uint32))


def print_xid8(values: pa.BinaryArray) -> pa.StringArray:
    return digits(fixed_width(values, ">u8", "xid8").astype(np.uint64))


def print_tid(values: pa.BinaryArray) -> pa.StringArray:
    parts = fixed_width(values, [("block", ">u4"), ("offset", ">u2")], "tid")
    return join("(", digits(parts["block"].astype(np.uint32)), ",", digits(parts["offset"].astype(np.uint16)), ")")


def print_lsn(values: pa.BinaryArray) -> pa.StringArray:
    octets = fixed_width(values, "V8", "pg_lsn").view(np.uint8).reshape(-1, 8)
    return join(_upper_hexadecimal(octets[:, :4]), "/", _upper_hexadecimal(octets[:, 4:]))


def _upper_hexadecimal(octets: Bytes) -> pa.StringArray:
    """Without leading zeros, but never empty."""
    text = hexadecimal(octets)
    shown = np.logical_or.accumulate(text != ord("0"), axis=1)
    shown[:, -1] = True
    return kept(np.where(text >= ord("a"), text - 32, text).astype(np.uint8), shown)
