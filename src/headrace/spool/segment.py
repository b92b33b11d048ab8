"""One segment: an Arrow IPC file of raw pgoutput messages that can be decoded on its own.

Columns are `lsn` (uint64) and `message` (binary), one record batch. The schema's metadata carries the index: which
tables the segment has changes of and how many, the ordinal at which a transaction continues that began in an earlier
part, and the segment's own LSN range. Two CRC-32 checksums stand beside it, one of the record batch, one of the index.

An Arrow file holds its schema twice, in front and in the footer. So a footer that is damaged or cut off costs nothing
as long as the record batch is whole, and a damaged record batch leaves the index readable: it affects only the tables
that have changes in it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import ProtocolError, SpoolCorrupt
from ..lsn import Lsn
from ..pgoutput.batch import PADDING, MessageBatch
from ..remedies import RESYNC
from .name import SegmentName

__all__ = [
    "UNREADABLE",
    "SegmentIndex",
    "TableIndex",
    "plain_array",
    "plain_values",
    "read_index",
    "read_segment",
    "relation_digest",
    "write_segment",
]

_Number = TypeVar("_Number", np.uint32, np.uint64)

FORMAT = b"3"
_UNCHECKED_FORMAT = b"2"
"""The format before: without checksums and range."""
_FORMAT_KEY = b"headrace.format"
_INDEX_KEY = b"headrace.index"
_DATA_CHECKSUM_KEY = b"headrace.data-crc32"
_INDEX_CHECKSUM_KEY = b"headrace.index-crc32"
_STREAM_START = 8
"""Bytes of an Arrow file in front of what it has in common with an Arrow stream: the schema, then the batch."""
UNREADABLE = (pa.ArrowException, OSError, IndexError, KeyError, StopIteration, TypeError, ValueError)
"""What Arrow raises for bytes that are not a file of its own."""
_RESYNC = f"put the file back from a backup if there is one; otherwise copy the table again: {RESYNC}"
_FIELDS = [pa.field("lsn", pa.uint64(), nullable=False), pa.field("message", pa.binary(), nullable=False)]


@dataclass(frozen=True, slots=True)
class TableIndex:
    """What a segment holds of one table."""

    rows: int = 0
    truncates: int = 0
    relations: tuple[str, ...] = ()
    """Digests of its Relation messages, in order: a reader sees without reading whether its columns changed."""
    ddl: int = 0
    """Messages of our event trigger about it."""


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """What a segment holds: per table OID, and how many logical messages (DDL travels in them).

    Under `NO_TABLE` stand messages of our event trigger about publications.
    """

    tables: Mapping[int, TableIndex]
    logical_messages: int = 0
    first_ordinal: int = 0
    name: SegmentName | None = None
    """The name the segment is written for; None in the format before. Of a part that is written while its transaction
    still arrives, `end` and `parts` are 0: only the last part knows them."""

    def encode(self) -> bytes:
        tables = {str(oid): [t.rows, t.truncates, t.relations, t.ddl] for oid, t in self.tables.items()}
        value: dict[str, Any] = {"tables": tables, "logical_messages": self.logical_messages}
        value["first_ordinal"] = self.first_ordinal
        if self.name is not None:
            value["range"] = [int(self.name.start), int(self.name.end), self.name.part, self.name.parts]
        return json.dumps(value).encode()

    @classmethod
    def decode(cls, text: bytes) -> SegmentIndex:
        value = json.loads(text)
        tables = {
            int(oid): TableIndex(rows, truncates, tuple(relations), ddl)
            for oid, (rows, truncates, relations, ddl) in value["tables"].items()
        }
        start, end, part, parts = value.get("range", (0, 0, 0, 0))
        name = SegmentName(Lsn(start), Lsn(end), part, parts) if "range" in value else None
        return cls(tables, value["logical_messages"], value["first_ordinal"], name)

    def is_for(self, name: SegmentName) -> bool:
        """Whether the segment was written for a name, as far as it was known then."""
        own = self.name
        if own is None:
            return True
        return (own.start, own.part) == (name.start, name.part) and (
            own.parts == 0 or (own.end, own.parts) == (name.end, name.parts)
        )


def relation_digest(message: bytes) -> str:
    """Tells Relation messages apart in `TableIndex.relations`."""
    return hashlib.blake2b(message, digest_size=8).hexdigest()


def write_segment(
    path: Path,
    lsns: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.int64],
    data: Sequence[bytes | memoryview],
    index: SegmentIndex,
) -> None:
    """Write a segment file; making it durable is the caller's."""
    ends = np.cumsum(lengths, dtype=np.int64)
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        msg = f"a segment of {ends[-1]} bytes cannot be written"
        raise ProtocolError(msg, hint="lower spool.segment_bytes")
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    offsets[1:] = ends
    values = b"".join(data)
    messages = pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    schema = pa.schema(_FIELDS, metadata=_metadata(index, _data_checksum(lsns, offsets, values)))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch([plain_array(lsns), messages], schema=schema))


def plain_array(values: npt.NDArray[Any]) -> pa.Array:
    """An Arrow array over the same memory.

    `pa.array` would make it too, but imports pandas first: a second, and tens of megabytes, for nothing in a receiver.
    """
    memory = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, memory])


def plain_values(array: pa.Array, kind: type[_Number]) -> npt.NDArray[_Number]:
    """The same memory as numpy sees it; `to_numpy` imports pandas too."""
    return np.frombuffer(array.buffers()[1], dtype=kind, count=len(array), offset=array.offset * kind().itemsize)


def read_index(buffer: pa.Buffer, name: SegmentName, where: str) -> SegmentIndex:
    """Read and verify the index of the segment `name`, which lies at `where`. Raises SpoolCorrupt."""
    return _header(buffer, name, where)[0]


def read_segment(buffer: pa.Buffer, name: SegmentName, where: str) -> MessageBatch:
    """Read and verify the messages of the segment `name`, without a copy of their bytes. Raises SpoolCorrupt."""
    index, checksum = _header(buffer, name, where)
    try:
        lsns, starts, values = _columns(_footer_batch(buffer), checksum, where)
    except (SpoolCorrupt, *UNREADABLE):
        try:
            lsns, starts, values = _columns(_front_batch(buffer), checksum, where)
        except UNREADABLE as error:
            raise SpoolCorrupt(f"segment {where} cannot be read", detail=str(error), hint=_RESYNC) from error
    return MessageBatch(lsns, starts.astype(np.int64), _padded(buffer, values, int(starts[-1])), index.first_ordinal)


def _columns(
    batch: Any, checksum: int | None, where: str
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32], pa.Buffer | None]:
    """Return the LSNs, the offsets and the bytes of the messages, verified."""
    batch.validate()
    if not batch.schema.equals(pa.schema(_FIELDS)):
        raise SpoolCorrupt(f"segment {where} is damaged: it has other columns", hint=_RESYNC)
    _, offsets, values = batch.column(1).buffers()
    starts = np.frombuffer(offsets, dtype=np.int32, count=batch.num_rows + 1)
    lsns = plain_values(batch.column(0), np.uint64)
    content = memoryview(b"" if values is None else values)[: int(starts[-1])]
    if checksum is not None and _data_checksum(lsns, starts, content) != checksum:
        msg = f"segment {where} is damaged: its messages do not match their checksum"
        raise SpoolCorrupt(msg, hint=_RESYNC)
    return lsns, starts, values


def _metadata(index: SegmentIndex, data_checksum: int) -> dict[bytes, bytes]:
    encoded, checksum = index.encode(), b"%08x" % data_checksum
    return {
        _FORMAT_KEY: FORMAT,
        _INDEX_KEY: encoded,
        _DATA_CHECKSUM_KEY: checksum,
        _INDEX_CHECKSUM_KEY: b"%08x" % _index_checksum(encoded, checksum),
    }


def _data_checksum(lsns: npt.NDArray[np.uint64], offsets: npt.NDArray[np.int32], values: bytes | memoryview) -> int:
    front = zlib.crc32(np.ascontiguousarray(offsets).data, zlib.crc32(np.ascontiguousarray(lsns).data))
    return zlib.crc32(values, front)


def _index_checksum(encoded: bytes, data_checksum: bytes) -> int:
    """The checksum of the data is part of it: an index vouches for its own messages only."""
    return zlib.crc32(encoded, zlib.crc32(data_checksum))


def _header(buffer: pa.Buffer, name: SegmentName, where: str) -> tuple[SegmentIndex, int | None]:
    """Return index and data checksum from the footer or, where that is damaged, from the front of the file."""
    try:
        return _verified_header(_footer_schema(buffer, where), name, where)
    except SpoolCorrupt as error:
        try:
            return _verified_header(pa.ipc.read_schema(buffer.slice(_STREAM_START)), name, where)
        except (SpoolCorrupt, *UNREADABLE):
            raise error from None


def _footer_schema(buffer: pa.Buffer, where: str) -> Any:
    try:
        return pa.ipc.open_file(buffer).schema
    except UNREADABLE as error:
        raise SpoolCorrupt(f"segment {where} is not an Arrow file", detail=str(error)) from error


def _footer_batch(buffer: pa.Buffer) -> Any:
    return pa.ipc.open_file(buffer).get_batch(0)


def _front_batch(buffer: pa.Buffer) -> Any:
    return pa.ipc.open_stream(buffer.slice(_STREAM_START)).read_next_batch()


def _verified_header(schema: Any, name: SegmentName, where: str) -> tuple[SegmentIndex, int | None]:
    metadata = schema.metadata or {}
    found = metadata.get(_FORMAT_KEY, b"none")
    if found not in (FORMAT, _UNCHECKED_FORMAT):
        formats = f"{_UNCHECKED_FORMAT.decode()} and {FORMAT.decode()}"
        text = found.decode(errors="replace")
        raise SpoolCorrupt(f"segment {where} has format {text}, this version reads {formats}")
    try:
        # By what is there, too: one flipped bit makes the one format of the other.
        if found == _UNCHECKED_FORMAT and _INDEX_CHECKSUM_KEY not in metadata:
            return SegmentIndex.decode(metadata[_INDEX_KEY]), None
        encoded, checksum = metadata[_INDEX_KEY], metadata[_DATA_CHECKSUM_KEY]
        is_whole = int(metadata[_INDEX_CHECKSUM_KEY], 16) == _index_checksum(encoded, checksum)
        index = SegmentIndex.decode(encoded) if is_whole else None
        data_checksum = int(checksum, 16)
    except (AttributeError, *UNREADABLE) as error:
        raise SpoolCorrupt(f"segment {where} has no readable index") from error
    if index is None:
        raise SpoolCorrupt(f"segment {where} is damaged: its index does not match its checksum")
    if not index.is_for(name):
        msg = f"segment {where} is damaged: it has the content of another segment"
        raise SpoolCorrupt(msg, detail=f"it was written as {index.name}")
    return index, data_checksum


def _padded(file: pa.Buffer, values: pa.Buffer | None, used: int) -> npt.NDArray[np.uint8]:
    """The message bytes and PADDING readable ones behind them: those of the file itself, whose footer follows."""
    if values is None:
        return np.zeros(PADDING, dtype=np.uint8)
    start = values.address - file.address
    if start >= 0 and start + used + PADDING <= file.size:
        return np.frombuffer(file, dtype=np.uint8)[start : start + used + PADDING]
    return np.concatenate([np.frombuffer(values, dtype=np.uint8)[:used], np.zeros(PADDING, dtype=np.uint8)])
