"""Pieces from which Postgres's text is put together, a column at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .layout import Bools, Bytes, strings

__all__ = ["choose", "clock", "digits", "hexadecimal", "join", "kept"]

_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)


def digits(numbers: npt.NDArray[Any], width: int = 1) -> pa.StringArray:
    """Non-negative numbers, zero-padded to a width."""
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def join(*pieces: pa.StringArray | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*pieces, "")


def choose(condition: Bools, then: pa.StringArray | str, otherwise: pa.StringArray | str) -> pa.StringArray:
    return pc.if_else(pa.array(condition), then, otherwise)


def clock(microseconds: npt.NDArray[np.int64]) -> pa.StringArray:
    """`HH:MM:SS`, with as many decimals as are needed; hours may exceed 24."""
    seconds, fraction = np.divmod(microseconds, 1_000_000)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    decimals = pc.ascii_rtrim(join(".", digits(fraction, 6)), "0.")
    return join(digits(hour, 2), ":", digits(minute, 2), ":", digits(second, 2), decimals)


def hexadecimal(data: Bytes) -> Bytes:
    """Two lower-case digits for each byte, in a new last axis of twice the length."""
    pairs = np.empty((*data.shape, 2), np.uint8)
    pairs[..., 0] = _HEXADECIMAL[data >> 4]
    pairs[..., 1] = _HEXADECIMAL[data & 15]
    return pairs.reshape(*data.shape[:-1], 2 * data.shape[-1])


def kept(characters: Bytes, keep: Bools) -> pa.StringArray:
    """One text from each row of a character matrix: the characters that are kept, in order."""
    offsets = np.zeros(len(characters) + 1, np.int64)
    np.cumsum(keep.sum(axis=1), out=offsets[1:])
    return strings(characters[keep], offsets)
