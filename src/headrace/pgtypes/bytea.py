"""bytea -> binary. The session has `bytea_output = hex`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .contract import Converted
from .layout import Bools, binaries, dense_apply, malformed, scan, strings
from .printing import hexadecimal

__all__ = ["ByteaConversion"]

_PREFIX, _INVALID = 256, 257


def _pair_table() -> npt.NDArray[np.uint16]:
    """What two characters, read as one 16-bit number, stand for."""
    digits = hexadecimal(np.arange(256, dtype=np.uint8)[:, None])
    table = np.full(65_536, _INVALID, np.uint16)
    table[digits.view(np.uint16)[:, 0]] = np.arange(256)
    table[np.frombuffer(b"\\x", np.uint16)] = _PREFIX
    return table


_PAIRS = _pair_table()


@dataclass(frozen=True, slots=True)
class ByteaConversion:
    r"""`\x` and two digits for each byte; the binary form is the bytes themselves."""

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    @property
    def supports_binary(self) -> bool:
        return True

    def from_text(self, texts: pa.StringArray) -> Converted:
        return Converted(dense_apply(_decode, texts))

    def from_binary(self, values: pa.BinaryArray) -> Converted:
        return Converted(values)

    def text_from_binary(self, values: pa.BinaryArray) -> pa.StringArray:
        return dense_apply(_encode, values)


def _decode(texts: pa.StringArray) -> pa.BinaryArray:
    """The prefix is as long as a byte's digits, so that all texts together are a run of pairs."""
    data, offsets = scan(texts)
    if np.any(offsets % 2) or np.any(np.diff(offsets) == 0):
        raise malformed("bytea")
    pairs = _PAIRS[np.frombuffer(data, np.uint16)]
    body: Bools = pairs < _PREFIX
    prefixes = np.flatnonzero(~body)
    if not np.array_equal(prefixes, offsets[:-1] // 2) or np.any(pairs[prefixes] == _INVALID):
        raise malformed("bytea")
    return binaries(pairs[body].astype(np.uint8), offsets // 2 - np.arange(len(offsets)))


def _encode(values: pa.BinaryArray) -> pa.StringArray:
    data, offsets = scan(values)
    ends = 2 * offsets + 2 * np.arange(len(offsets))
    text = np.empty(int(ends[-1]), np.uint8)
    body: Bools = np.ones(len(text), np.bool_)
    body[ends[:-1]] = body[ends[:-1] + 1] = False
    text[ends[:-1]], text[ends[:-1] + 1] = ord("\\"), ord("x")
    text[body] = hexadecimal(data)
    return strings(text, ends)
