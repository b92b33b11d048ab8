"""The values of one column, from where they lie in the batch's buffer to one Arrow array of the column's type."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import ProtocolError
from ..pgtypes.contract import Conversion, Converted
from .tuples import TEXT, Cells

__all__ = ["bitmap", "convert"]

_HIGH_BITS = 0x80
_HIGH_BITS_OF_EIGHT = np.uint64(0x8080808080808080)


def convert(cells: Cells, data: npt.NDArray[np.uint8], conversion: Conversion) -> Converted:
    """Convert a column."""
    text = cells.where(TEXT)
    if text.any():
        return conversion.from_text(_texts(cells, data, text))
    return Converted(pa.nulls(len(cells.formats), conversion.arrow_type))


def bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """An Arrow validity buffer; None when all are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _texts(cells: Cells, data: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_]) -> pa.StringArray:
    texts = _gather(cells, data, valid)
    if not _is_ascii(texts.buffers()[2]):
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            msg = "malformed pgoutput tuple"
            raise ProtocolError(
                msg, detail="a text is not UTF-8", hint="the connection must have client_encoding UTF8"
            ) from None
    return texts


def _gather(cells: Cells, data: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_]) -> pa.StringArray:
    """Copy the values together, by one call that moves each value as a block.

    The batch's own buffer is seen as an array of twice as many strings, value, gap, value, gap, …, of which the
    values are taken: possible because the values lie in row order.
    """
    count = len(cells.formats)
    base = int(cells.starts[0])
    starts = cells.starts - base
    sizes = cells.sizes if valid.all() else cells.sizes * valid
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = starts
    offsets[1::2] = starts + sizes
    spread = pa.Array.from_buffers(pa.string(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data[base:])])
    taken = spread.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    return pa.Array.from_buffers(pa.string(), count, [bitmap(valid), *taken.buffers()[1:]])


def _is_ascii(buffer: pa.Buffer | None) -> bool:
    if buffer is None:
        return True
    octets = np.frombuffer(buffer, dtype=np.uint8)
    whole = len(octets) // 8 * 8
    words = octets[:whole].view(np.uint64)
    return not (np.bitwise_or.reduce(words) & _HIGH_BITS_OF_EIGHT or (octets[whole:] & _HIGH_BITS).any())
