"""Parquet files whose columns of type `variant.VARIANT` are marked as VARIANT.

pyarrow writes such a column as a plain group of two binaries and has no way to mark it. Iceberg's own readers go by the
table's schema, but others (DuckDB) go by the mark, and the formats ask for it. So the mark is put into the footer while
it is written: nothing is written twice, and the file may go to any store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["VariantSink", "marked_footer"]

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8
"""The footer's length and the magic, behind the footer."""

# Parquet's footer is Thrift's compact protocol: a FileMetaData, whose second field is the list of SchemaElements.
_SCHEMA = 2
_NAME, _NUM_CHILDREN, _FIELD_ID = 4, 5, 9
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12

_MARK = bytes([0x1C, 0x0C, 0x20, 0x13, 0x01, 0x00, 0x00])
"""What follows field 9 of a SchemaElement: field 10, a struct (LogicalType); in it field 16, a struct (VariantType); in
that field 1, a byte, the version of the specification, 1; and the ends of both."""


def marked_footer(footer: bytes, columns: Collection[str]) -> bytes:
    """A Parquet footer in which the named columns (of the top level, groups with a field id) are marked as VARIANT."""
    marks = _places(_Reader(footer), columns)
    if len(marks) != len(columns):
        msg = f"of the columns {', '.join(sorted(columns))} the footer has {len(marks)}"
        raise ValueError(msg)
    cuts = [0, *marks, len(footer)]
    return _MARK.join(footer[start:end] for start, end in pairwise(cuts))


def _places(reader: _Reader, columns: Collection[str]) -> list[int]:
    """Where the marks belong: before the byte that ends each column's SchemaElement."""
    for field, kind in reader.fields():
        if field == _SCHEMA:
            break
        reader.skip(kind)
    places: list[int] = []
    inside = 0
    for position in range(reader.list_header()[0]):
        name, children, last = _element(reader)
        # The first is the root; elements below a column of the top level follow it at once.
        if position and not inside and name in columns:
            if last != _FIELD_ID:
                msg = f"column {name} has no field id, or is marked already"
                raise ValueError(msg)
            places.append(reader.position - 1)
        inside = max(inside - 1, 0) + (children if position else 0)
    return places


def _element(reader: _Reader) -> tuple[str, int, int]:
    """Name, number of children and last field of the SchemaElement that begins here."""
    name, children, last = "", 0, 0
    for field, kind in reader.fields():
        last = field
        if field == _NAME:
            name = reader.binary().decode()
        elif field == _NUM_CHILDREN:
            children = reader.integer()
        else:
            reader.skip(kind)
    return name, children, last


class _Reader:
    """As much of Thrift's compact protocol as it takes to walk over a schema."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct; the caller consumes the value before it asks for the next."""
        field = 0
        while header := self._byte():
            field = field + (header >> 4) if header >> 4 else self.integer()
            yield field, header & 15

    def integer(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        length = self._unsigned()
        self.position += length
        return self._data[self.position - length : self.position]

    def list_header(self) -> tuple[int, int]:
        """Length and element type."""
        header = self._byte()
        length = header >> 4
        return (self._unsigned() if length == 15 else length), header & 15

    def skip(self, kind: int) -> None:
        if kind in _INTEGERS:
            self._unsigned()
        elif kind == _BINARY:
            self.binary()
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in (_BYTE, _DOUBLE):
            self.position += 1 if kind == _BYTE else 8
        elif kind not in _BOOLEANS:
            msg = f"a Parquet schema has no field of Thrift type {kind}"
            raise ValueError(msg)

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]


class VariantSink:
    """What a ParquetWriter writes to instead of the stream itself. `finish` closes the writer; nobody else may.

    Everything passes through at once, except what closing a writer writes: that ends with the footer.
    """

    def __init__(self, stream: pa.NativeFile, columns: Collection[str]) -> None:
        self._stream = stream
        self._columns = columns
        self._closing: list[bytes] | None = None
        self._size = 0
        self.closed = False

    def finish(self, writer: pq.ParquetWriter) -> None:
        """Close the writer, marking the columns. The stream stays open."""
        self._closing = []
        writer.close()
        tail = b"".join(self._closing)
        self._closing = None
        cut = len(tail) - _TRAILER_BYTES - int.from_bytes(tail[-_TRAILER_BYTES:-4], "little")
        footer = marked_footer(tail[cut:-_TRAILER_BYTES], self._columns)
        self._size -= len(tail)
        self.write(tail[:cut] + footer + len(footer).to_bytes(4, "little") + _MAGIC)

    def write(self, data: bytes) -> int:
        if self._closing is None:
            self._stream.write(data)
        else:
            self._closing.append(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing waits here but a footer."""

    def close(self) -> None:
        self.closed = True
        self._stream.close()
