"""`COPY … (FORMAT csv)` -> typed Arrow, in one pass of Arrow's CSV reader where the types allow.

Arrow's reader parses numbers, dates and timestamps with the same code as the casts that `from_text` uses. When it
meets a value that a type cannot hold it gives up; the columns in question are then read as text and converted by
`from_text`, which sets such values aside.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ..errors import ProtocolError
from .contract import Conversion, Rejected

__all__ = ["CopyRows", "read_copy_csv"]

# What Arrow's reader parses as from_text does: types whose every value fits, and types that may have to reject one.
_SAFE = (pa.types.is_string, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
_FALLIBLE = (pa.types.is_decimal, pa.types.is_date, pa.types.is_timestamp)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class CopyRows:
    """Rows of a copy, and by column name the values that were rejected."""

    batch: pa.RecordBatch
    rejected: Mapping[str, Rejected] = field(default_factory=dict)


def read_copy_csv(data: bytes | memoryview | pa.Buffer, columns: Sequence[tuple[str, Conversion]]) -> CopyRows:
    """Read whole rows of CSV as Postgres writes it: NULL is an unquoted empty field, an empty text is a quoted one."""
    types = [conversion.arrow_type for _, conversion in columns]
    direct = {index for index, arrow_type in enumerate(types) if _is_any(arrow_type, *_SAFE, *_FALLIBLE)}
    try:
        read = _read(data, types, direct)
    except pa.ArrowInvalid:
        read = None
    if read is None or not _decimals_fit(read):
        direct = {index for index, arrow_type in enumerate(types) if _is_any(arrow_type, *_SAFE)}
        read = _read_or_explain(data, types, direct)
    return _convert(read, columns, direct)


def _is_any(arrow_type: pa.DataType, *kinds: Callable[[pa.DataType], bool]) -> bool:
    return any(kind(arrow_type) for kind in kinds)


def _decimals_fit(read: pa.RecordBatch) -> bool:
    """Whether all decimals are within their types: Arrow's reader does not look again after it added decimals."""
    return all(_fits(column) for column in read.columns if pa.types.is_decimal(column.type))


def _fits(decimals: pa.Decimal128Array) -> bool:
    extent = pc.min_max(decimals).as_py()
    limit = Decimal(10) ** (decimals.type.precision - decimals.type.scale)
    return extent["min"] is None or bool(-limit < extent["min"] and extent["max"] < limit)


def _read_or_explain(
    data: bytes | memoryview | pa.Buffer, types: Sequence[pa.DataType], direct: set[int]
) -> pa.RecordBatch:
    try:
        return _read(data, types, direct)
    except pa.ArrowInvalid:
        # Arrow's message quotes the row: it must not travel on as a cause.
        msg = "the rows of a COPY are not CSV of the expected columns"
        raise ProtocolError(msg) from None


def _read(data: bytes | memoryview | pa.Buffer, arrow_types: Sequence[pa.DataType], direct: set[int]) -> pa.RecordBatch:
    """Parse the `direct` columns to their types and leave the others text."""
    names = [str(index) for index in range(len(arrow_types))]
    types = {name: arrow_types[index] if index in direct else pa.string() for index, name in enumerate(names)}
    buffer = pa.py_buffer(data)
    if buffer.size == 0:
        return pa.RecordBatch.from_arrays([pa.array([], types[name]) for name in names], names)
    _require_utf8(buffer)
    # The reader would take a byte order mark away, though it may belong to the first value: a line goes before it.
    marked = memoryview(buffer)[:3].tobytes() == _BYTE_ORDER_MARK
    source = pa.BufferReader(pa.py_buffer(b"\n" + buffer.to_pybytes()) if marked else buffer)
    table = csv.read_csv(
        source,
        read_options=csv.ReadOptions(
            column_names=names, skip_rows=int(marked), use_threads=False, block_size=buffer.size + 1
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
            true_values=["t"], false_values=["f"], check_utf8=False,
        ),
    )  # fmt: skip
    return table.combine_chunks().to_batches()[0]


def _require_utf8(buffer: pa.Buffer) -> None:
    """Raise ArrowInvalid unless all of it is UTF-8, and with it every value: they are cut at ASCII characters.

    Asked once it costs a tenth of what it costs value by value.
    """
    offsets = pa.py_buffer(struct.pack("=qq", 0, buffer.size))
    pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, buffer]).validate(full=True)


def _convert(read: pa.RecordBatch, columns: Sequence[tuple[str, Conversion]], direct: set[int]) -> CopyRows:
    arrays, rejected = [], {}
    for index, (name, conversion) in enumerate(columns):
        values = read.column(index)
        if index not in direct:
            converted = conversion.from_text(values)
            values = converted.values
            if converted.rejected is not None:
                rejected[name] = converted.rejected
        arrays.append(values)
    return CopyRows(pa.RecordBatch.from_arrays(arrays, [name for name, _ in columns]), rejected)
