"""Many pgoutput messages side by side: one buffer, where each message starts, and its LSN.

This is the shape in which messages lie in a spool segment and in which the columnar decoder reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["PADDING", "MessageBatch"]

PADDING = 64
"""Bytes that must be readable behind the last message: vectorised reads of fixed width run past its end."""


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages in stream order, in pgoutput's protocol 1 form: streamed transactions are already unwrapped.

    `data` is one buffer (uint8, at least PADDING bytes longer than the last message's end); message i is
    `data[offsets[i]:offsets[i + 1]]`; `lsns[i]` is its WAL position. `first_ordinal` is the ordinal of the first change
    when the batch continues a transaction that began in an earlier part (its Begin is repeated in front), else 0.
    """

    lsns: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]
    first_ordinal: int = 0

    @classmethod
    def of(cls, messages: Sequence[bytes], lsns: Sequence[int] | None = None, first_ordinal: int = 0) -> MessageBatch:
        """Lay out messages that are at hand one by one (tests, small tools)."""
        offsets = np.zeros(len(messages) + 1, dtype=np.int64)
        np.cumsum([len(message) for message in messages], out=offsets[1:])
        data = np.frombuffer(b"".join(messages) + bytes(PADDING), dtype=np.uint8)
        positions = np.asarray(lsns if lsns is not None else [0] * len(messages), dtype=np.uint64)
        return cls(positions, offsets, data, first_ordinal)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def message(self, index: int) -> bytes:
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()
