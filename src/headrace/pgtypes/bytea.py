"""bytea -> binary. The session has `bytea_output = hex`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .contract import Converted
from .layout import Bools, binaries, dense_apply, malformed, scan

__all__ = ["ByteaConversion"]

_PREFIX, _INVALID = 256, 257


def _pair_table() -> npt.NDArray[np.uint16]:
    """What two characters, read as one 16-bit number, stand for."""
    table = np.full(65_536, _INVALID, np.uint16)
    table[np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)] = np.arange(256)
    table[np.frombuffer(b"\\x", np.uint16)] = _PREFIX
    return table


_PAIRS = _pair_table()


@dataclass(frozen=True, slots=True)
class ByteaConversion:
    r"""`\x` and two digits for each byte."""

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    def from_text(self, texts: pa.StringArray) -> Converted:
        return Converted(dense_apply(_decode, texts))


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
