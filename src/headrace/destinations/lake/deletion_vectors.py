"""Deletion vectors: which rows of a data file are deleted, as blobs `deletion-vector-v1` of a Puffin file,
or of a file of Delta's.

A blob is the length of what follows up to the checksum, four magic bytes, a 64-bit Roaring bitmap in its portable form,
and a CRC-32 of magic and bitmap; length and checksum big-endian.
"""

from __future__ import annotations

import base64
import json
import struct
import uuid
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from ...errors import DestinationError, RetryPolicy
from ...remedies import RESYNC
from .files import DeletionVector, LiveFile, TableLayout, VectorForm
from .places import file_io, new_path, removed

__all__ = ["Positions", "deleted_since", "read_positions", "read_vector", "write_vectors"]

Positions = npt.NDArray[np.int64]

_PUFFIN_MAGIC = b"PFA1"
_MAGIC = b"\xd1\xd3\x39\x64"
# The id of the reserved column of row positions.
_POSITION_FIELD = 2147483645
_UINT32 = struct.Struct(">I")

_DELTA_VERSION = b"\x01"
# The alphabet of Python's base 85 into that of ZeroMQ, which Delta uses.
_Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)

_AT_ONCE = 16
"""Files written at once: on object storage each takes some 50 ms, whatever its size."""


@dataclass(frozen=True, slots=True)
class _Blob:
    referenced: str
    offset: int
    length: int
    records: int

    def footer(self) -> dict[str, Any]:
        return {
            "type": "deletion-vector-v1",
            "fields": [_POSITION_FIELD],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": self.offset,
            "length": self.length,
            "properties": {"referenced-data-file": self.referenced, "cardinality": str(self.records)},
        }


def write_vectors(layout: TableLayout, deleted: Sequence[tuple[LiveFile, Positions]]) -> tuple[DeletionVector, ...]:
    """Write a vector per data file: its deleted positions, those of its present vector added.

    Each in a Puffin file of its own, though one could hold them all: DuckDB 1.5 then applies vectors to the wrong data
    files, and Iceberg's own expiry of snapshots removes files whose other vectors still count.
    When it raises, it has removed what it wrote.
    """
    if not deleted:
        return ()
    if layout.vectors is VectorForm.DELTA:
        return _write_together(layout, deleted)
    io, paths = file_io(layout), [new_path(layout, ".puffin") for _ in deleted]
    try:
        with ThreadPoolExecutor(min(_AT_ONCE, len(deleted))) as threads:
            files, positions = zip(*deleted, strict=True)
            return tuple(threads.map(partial(_write, io), paths, files, positions))
    except BaseException:
        removed(io, paths)
        raise


def _write_together(layout: TableLayout, deleted: Sequence[tuple[LiveFile, Positions]]) -> tuple[DeletionVector, ...]:
    """As Delta has them: a byte that tells the version, then the blobs. Its name is made of a UUID, and the log has
    that UUID only, behind what names the directory, which is the run's.
    """
    io, name, run = file_io(layout), uuid.uuid4(), layout.file_prefix.rstrip("-")
    path = f"{layout.data_location}/{run}/deletion_vector_{name}.bin"
    content, vectors = bytearray(_DELTA_VERSION), []
    for file, positions in deleted:
        bitmap = _bitmap(io, file, positions)
        blob = _blob(bitmap)
        entry = {
            "storageType": "u",
            "pathOrInlineDv": run + base64.b85encode(name.bytes).translate(_Z85).decode(),
            "offset": len(content),
            "sizeInBytes": len(blob) - 2 * _UINT32.size,
            "cardinality": len(bitmap),
        }
        vectors.append(DeletionVector(file.path, path, len(content), len(blob), len(bitmap), json.dumps(entry)))
        content += blob
    try:
        with io.new_output(path).create(overwrite=True) as sink:
            sink.write(bytes(content))
    except BaseException:
        removed(io, [path])
        raise
    return tuple(vectors)


def _bitmap(io: FileIO, file: LiveFile, positions: Positions) -> BitMap64:
    bitmap = BitMap64(np.ascontiguousarray(positions, dtype=np.uint64))
    if file.vector is not None:
        bitmap |= read_vector(io, file.vector)
    return bitmap


def _write(io: FileIO, path: str, file: LiveFile, positions: Positions) -> DeletionVector:
    bitmap = _bitmap(io, file, positions)
    content = _blob(bitmap)
    blob = _Blob(file.path, len(_PUFFIN_MAGIC), len(content), len(bitmap))
    whole = _PUFFIN_MAGIC + content + _footer(blob)
    with io.new_output(path).create(overwrite=True) as sink:
        sink.write(whole)
    return _vector(file, path, len(whole), blob)


def read_vector(io: FileIO, vector: DeletionVector) -> BitMap64:
    """The positions a vector names. It is checked as a whole: length, magic, checksum, cardinality."""
    with io.new_input(vector.path).open() as source:
        source.seek(vector.offset)
        blob = source.read(vector.length)
    body, checksum = blob[4:-4], blob[-4:]
    if (
        len(blob) != vector.length
        or blob[:4] != _UINT32.pack(len(body))
        or body[:4] != _MAGIC
        or checksum != _UINT32.pack(zlib.crc32(body))
    ):
        raise _damaged(vector, "its length, magic bytes or checksum are wrong")
    bitmap = BitMap64.deserialize(body[4:])
    if len(bitmap) != vector.records:
        raise _damaged(vector, f"it names {len(bitmap)} rows where {vector.records} are recorded")
    return bitmap


def read_positions(io: FileIO, file: LiveFile) -> Positions:
    """The deleted positions of a data file, ascending."""
    if file.vector is None:
        return np.empty(0, dtype=np.int64)
    return np.asarray(read_vector(io, file.vector).to_array(), dtype=np.int64)


def deleted_since(then: Positions, now: Positions) -> Positions | None:
    """Positions deleted now and not then. None if one is no longer deleted: the table was set back meanwhile."""
    if not np.isin(then, now).all():
        return None
    return np.setdiff1d(now, then)


def _blob(bitmap: BitMap64) -> bytes:
    bitmap.run_optimize()
    body = _MAGIC + bitmap.serialize()
    return _UINT32.pack(len(body)) + body + _UINT32.pack(zlib.crc32(body))


def _footer(blob: _Blob) -> bytes:
    payload = json.dumps({"blobs": [blob.footer()]}, ensure_ascii=False).encode()
    # Length, then four bytes of flags: the payload is not compressed.
    return _PUFFIN_MAGIC + payload + struct.pack("<i", len(payload)) + bytes(4) + _PUFFIN_MAGIC


def _vector(file: LiveFile, path: str, size: int, blob: _Blob) -> DeletionVector:
    entry = {
        "spec-id": file.spec_id,
        "content": "position-deletes",
        "file-path": path,
        "file-format": "puffin",
        "partition": json.loads(file.partition_json),
        "file-size-in-bytes": size,
        "record-count": blob.records,
        "referenced-data-file": file.path,
        "content-offset": blob.offset,
        "content-size-in-bytes": blob.length,
    }
    text = json.dumps(entry, ensure_ascii=False)
    return DeletionVector(file.path, path, blob.offset, blob.length, blob.records, text)


def _damaged(vector: DeletionVector, detail: str) -> DestinationError:
    return DestinationError(
        f"the deletion vector of {vector.referenced} is damaged",
        detail=f"{vector.path} at {vector.offset}: {detail}",
        hint=f"restore the file, or copy the table again: {RESYNC}",
        retry=RetryPolicy.MANUAL,
    )
