"""Many TupleData at once: where each value lies, column by column.

The walk holds one position per row. A step reads the format byte and the length at every position and moves all of them
behind the value, so its cost does not depend on how long the values are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ProtocolError
from .unaligned import big_endian

__all__ = ["NULL", "TEXT", "UNCHANGED_TOAST", "Cells", "walk_tuples"]

TEXT, NULL, UNCHANGED_TOAST = b"tnu"

_NO_VALUE = np.zeros(256, dtype=bool)
_NO_VALUE[[NULL, UNCHANGED_TOAST]] = True

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The values of one column: the format of each, and where its bytes lie (size 0 where there are none).

    Rows stand in the order of their bytes, so `starts` never goes backward.
    """

    formats: npt.NDArray[np.uint8]
    starts: Positions
    sizes: npt.NDArray[np.int64]

    def where(self, format_: int) -> npt.NDArray[np.bool_]:
        return np.equal(self.formats, format_)


def walk_tuples(
    data: npt.NDArray[np.uint8], at: Positions, ends: Positions, column_count: int
) -> tuple[list[Cells], Positions]:
    """Walk the tuples that start at `at`; return their columns and the positions behind them.

    Raises ProtocolError for a tuple of another column count, an unknown format, or one that runs past its message's
    end. Reads stay within the padding that a MessageBatch has behind its last message.
    """
    lengths = big_endian(data, 4)
    if (big_endian(data, 2)[at] != column_count).any():
        raise _malformed("its number of columns differs from its relation's")
    at = at + 2
    columns = []
    for _ in range(column_count):
        _check(at, ends)
        cells, at = _step(data, lengths, at)
        columns.append(cells)
    _check(at, ends)
    return columns, at


def _step(
    data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.unsignedinteger[npt.NBitBase]], at: Positions
) -> tuple[Cells, Positions]:
    formats = data[at]
    sizes = lengths[at + 1].astype(np.int64)
    starts = at + 5
    if not (formats == TEXT).all():
        # A value that is not there has no length either: only its format byte.
        absent = _NO_VALUE[formats]
        if not (absent | (formats == TEXT)).all():
            raise _malformed("unknown value format")
        sizes[absent] = 0
        starts -= absent * np.int64(4)
    return Cells(formats, starts, sizes), starts + sizes


def _check(at: Positions, ends: Positions) -> None:
    if (at > ends).any():
        raise _malformed("a value runs past the end of its message")


def _malformed(why: str) -> ProtocolError:
    return ProtocolError("malformed pgoutput tuple", detail=why)
