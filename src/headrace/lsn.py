"""A position in Postgres's write-ahead log: parse, format, order.

An `Lsn` is an `int`, so that it sorts, pickles and goes into numpy and Arrow columns as it is.
"""

from __future__ import annotations

import re

__all__ = ["INVALID_LSN", "Lsn"]

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class Lsn(int):
    """A byte position in the WAL, printed the way Postgres prints it (`16/B374D848`)."""

    __slots__ = ()

    def __new__(cls, value: int = 0) -> Lsn:
        if not 0 <= value < 1 << 64:
            msg = f"an LSN is an unsigned 64-bit number, not {value}"
            raise ValueError(msg)
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Read Postgres's text form; raises ValueError for anything else."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            msg = f"not an LSN: {text!r} (expected two hexadecimal numbers as in 16/B374D848)"
            raise ValueError(msg)
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn('{self}')"

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec[-1:] in ("b", "d", "o", "x", "X") else format(str(self), spec)


INVALID_LSN = Lsn(0)
"""Postgres's InvalidXLogRecPtr: "no position"; no WAL record ever starts there."""
