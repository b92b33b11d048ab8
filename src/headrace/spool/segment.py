"""One segment: an Arrow IPC file of raw pgoutput messages that can be decoded on its own.

Columns are `lsn` (uint64) and `message` (binary), one record batch. The schema's metadata carries the index: which
tables the segment has changes of and how many, and the ordinal at which a transaction continues that began in an
earlier part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import SpoolCorrupt
from ..pgoutput.batch import PADDING, MessageBatch

__all__ = [
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

FORMAT = b"2"
_FORMAT_KEY = b"headrace.format"
_INDEX_KEY = b"headrace.index"
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

    def encode(self) -> bytes:
        tables = {str(oid): [t.rows, t.truncates, t.relations, t.ddl] for oid, t in self.tables.items()}
        return json.dumps(
            {"tables": tables, "logical_messages": self.logical_messages, "first_ordinal": self.first_ordinal}
        ).encode()

    @classmethod
    def decode(cls, text: bytes) -> SegmentIndex:
        value = json.loads(text)
        tables = {
            int(oid): TableIndex(rows, truncates, tuple(relations), ddl)
            for oid, (rows, truncates, relations, ddl) in value["tables"].items()
        }
        return cls(tables, value["logical_messages"], value["first_ordinal"])


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
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    values = pa.py_buffer(b"".join(data))
    messages = pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), values])
    schema = pa.schema(_FIELDS, metadata={_FORMAT_KEY: FORMAT, _INDEX_KEY: index.encode()})
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


def read_index(buffer: pa.Buffer, name: str) -> SegmentIndex:
    return _index(_open(buffer, name).schema, name)


def read_segment(buffer: pa.Buffer, name: str) -> MessageBatch:
    """The messages of a segment, without a copy of their bytes."""
    file = _open(buffer, name)
    index = _index(file.schema, name)
    try:
        batch = file.get_batch(0)
        batch.validate()
    except (pa.ArrowInvalid, OSError, IndexError) as error:
        raise SpoolCorrupt(f"segment {name} cannot be read", detail=str(error)) from error
    _, offsets, values = batch.column("message").buffers()
    starts = np.frombuffer(offsets, dtype=np.int32, count=batch.num_rows + 1).astype(np.int64)
    lsns = plain_values(batch.column("lsn"), np.uint64)
    return MessageBatch(lsns, starts, _padded(buffer, values, int(starts[-1])), index.first_ordinal)


def _open(buffer: pa.Buffer, name: str) -> Any:
    try:
        return pa.ipc.open_file(buffer)
    except (pa.ArrowInvalid, OSError) as error:
        raise SpoolCorrupt(f"segment {name} is not an Arrow file", detail=str(error)) from error


def _index(schema: Any, name: str) -> SegmentIndex:
    metadata = schema.metadata or {}
    if metadata.get(_FORMAT_KEY) != FORMAT:
        found = metadata.get(_FORMAT_KEY, b"none").decode(errors="replace")
        raise SpoolCorrupt(f"segment {name} has format {found}, this version reads {FORMAT.decode()}")
    try:
        return SegmentIndex.decode(metadata[_INDEX_KEY])
    except (KeyError, TypeError, ValueError) as error:
        raise SpoolCorrupt(f"segment {name} has no readable index") from error


def _padded(file: pa.Buffer, values: pa.Buffer | None, used: int) -> npt.NDArray[np.uint8]:
    """The message bytes and PADDING readable ones behind them: those of the file itself, whose footer follows."""
    if values is None:
        return np.zeros(PADDING, dtype=np.uint8)
    start = values.address - file.address
    if start >= 0 and start + used + PADDING <= file.size:
        return np.frombuffer(file, dtype=np.uint8)[start : start + used + PADDING]
    return np.concatenate([np.frombuffer(values, dtype=np.uint8)[:used], np.zeros(PADDING, dtype=np.uint8)])
