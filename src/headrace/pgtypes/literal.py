"""What array and hstore literals have in common: double quotes, and backslashes that take the meaning from what
follows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .layout import Bools, Bytes, Ints, malformed

__all__ = ["Quoting", "read_quoting"]

_BACKSLASH, _QUOTE = ord("\\"), ord('"')


@dataclass(frozen=True, slots=True)
class Quoting:
    """`quotes` marks the quotes themselves; `inside` what stands between two, with the first; `escapes` are
    positions.
    """

    quotes: Bools
    inside: Bools
    escapes: Ints


def read_quoting(data: Bytes, ends: Ints, type_name: str) -> Quoting:
    """Read the quoting of many literals laid end to end. No quote may be left open at any of their ends."""
    quotes = data == _QUOTE
    escapes = _escapes(data)
    if len(escapes):
        if escapes[-1] + 1 >= len(data):
            raise malformed(type_name)
        quotes[escapes + 1] = False
    # Only the parity counts, so that the sum may wrap.
    inside = (np.cumsum(quotes, dtype=np.uint8) & 1).astype(np.bool_)
    if np.any(inside[ends[ends > 0] - 1]):
        raise malformed(type_name)
    return Quoting(quotes, inside, escapes)


def _escapes(data: Bytes) -> Ints:
    """Backslashes that escape: in a run of them, the first, the third, and so on."""
    backslashes = np.flatnonzero(data == _BACKSLASH)
    if not len(backslashes):
        return backslashes
    ordinals = np.arange(len(backslashes))
    begins_run = np.diff(backslashes, prepend=-2) != 1
    in_run = ordinals - np.maximum.accumulate(np.where(begins_run, ordinals, 0))
    return np.asarray(backslashes[in_run % 2 == 0])
