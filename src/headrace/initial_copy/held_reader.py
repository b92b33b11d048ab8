"""Reads small ranges on the connection that holds their snapshot: no other connection, no thread, no task.

Of a table with a few rows, opening a connection costs more than all the rest of its copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from ..errors import ProtocolError
from ..pgtypes.contract import Conversion
from ..pgtypes.copy_csv import read_copy_csv
from ..postgres.translation import translated_errors
from .ranges import CopyRange
from .reader import CopyBatch

__all__ = ["SMALL_BYTES", "TooLarge", "read_held_range"]

SMALL_BYTES = 256 << 10
"""Bytes of a table, on disk, up to which it is read so. Rows come one by one here, some thousands at most."""

_LARGEST_BYTES = 8 << 20


class TooLarge(Exception):
    """The rows are more than they seemed: compressed values, or statistics that do not tell. Nothing was lost."""


def read_held_range(
    connection: psycopg.Connection[Any], part: CopyRange, columns: Sequence[tuple[str, Conversion]]
) -> CopyBatch:
    """All rows of a range, in the transaction that the connection is in. Raises TooLarge, SourceError."""
    query = f"COPY ({part.copy_sql()}) TO STDOUT (FORMAT csv)"
    pieces: list[bytes | bytearray | memoryview] = []
    size = 0
    cursor = connection.cursor()
    # A savepoint: the snapshot outlives a COPY that is given up.
    with (
        translated_errors(f"cannot copy {part.relation}"),
        connection.transaction(),
        cursor.copy(query.encode()) as copy,
    ):
        for piece in copy:
            pieces.append(piece)
            size += len(piece)
            if size > _LARGEST_BYTES:
                raise TooLarge
    read = read_copy_csv(b"".join(pieces), columns)
    if read.batch.num_rows != cursor.rowcount:
        msg = f"a COPY sent {cursor.rowcount} rows, of which {read.batch.num_rows} were read"
        raise ProtocolError(msg)
    return CopyBatch(read.batch, read.rejected, size)
