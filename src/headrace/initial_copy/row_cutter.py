"""Cuts a stream of CSV into pieces that end where rows end, without looking at rows one by one.

A line end inside quotes does not end a row. Every quote is a byte of its own, a quote within a value is two of them, so
a line end is outside quotes exactly where the number of quotes before it, from a row's start on, is even.
"""

from __future__ import annotations

import numpy as np

from ..errors import ProtocolError

__all__ = ["RowCutter"]


class RowCutter:
    """Bytes in, pieces of about `size` bytes out; a row that is larger comes whole."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._parts: list[bytes] = []
        self._held = 0
        self._wanted = size

    def feed(self, data: bytes) -> memoryview | None:
        """Take the next bytes; returns whole rows once there are enough, without a copy of their own."""
        self._parts.append(data)
        self._held += len(data)
        if self._held < self._wanted:
            return None
        joined = b"".join(self._parts)
        end = _end_of_rows(joined)
        self._keep(joined[end:] if end else joined)
        # A row that spans many pieces is looked at again only when it has doubled, not with every piece.
        self._wanted = max(self._size, 2 * self._held)
        return memoryview(joined)[:end] if end else None

    def finish(self) -> memoryview:
        """The rows that are left, possibly none."""
        rest = b"".join(self._parts)
        self._keep(b"")
        if _end_of_rows(rest) != len(rest):
            msg = "the rows of a COPY end in the middle of a row"
            raise ProtocolError(msg)
        return memoryview(rest)

    def _keep(self, rest: bytes) -> None:
        self._parts = [rest] if rest else []
        self._held = len(rest)


def _end_of_rows(data: bytes) -> int:
    """The position behind the last line end outside quotes, 0 if there is none. `data` starts at a row's start."""
    last = data.rfind(b"\n")
    # Most data has no quotes at all, and to see that takes a fraction of the time of counting them.
    if last < 0 or b'"' not in data or data.count(b'"', 0, last) % 2 == 0:
        return last + 1
    values = np.frombuffer(data, dtype=np.uint8)
    line_ends = np.flatnonzero(values == ord("\n"))
    outside = line_ends[np.searchsorted(np.flatnonzero(values == ord('"')), line_ends) % 2 == 0]
    return int(outside[-1]) + 1 if outside.size else 0
