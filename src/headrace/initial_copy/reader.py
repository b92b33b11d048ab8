"""Reads one range to Arrow: COPY in CSV form, cut where rows end, parsed by Arrow's reader.

A thread of its own talks to the server while the caller works on the batch before; two pieces at most wait between
them, then the server has to wait. Closing the iterator cancels the COPY and closes the connection.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from ..config.connection import PgConnectionConfig
from ..errors import HeadraceError, ProtocolError, SourceSnapshotTooOld, SourceUnsupported
from ..pgtypes.contract import Conversion, Rejected
from ..pgtypes.copy_csv import read_copy_csv
from ..pgtypes.registry import TypeOptions, conversion_for
from ..postgres.snapshots import Snapshot
from ..schema import ReplicatedTableSchema
from .ranges import CopyRange
from .row_cutter import RowCutter
from .session import open_session, translated_asyncpg_errors

__all__ = ["CopyBatch", "copy_columns", "read_range"]

_BATCH_BYTES = 8 << 20
_WAITING_PIECES = 2
_CLOSE_TIMEOUT_S = 5.0
# A server sends 8 KiB at a time, and waking up for each costs more than all the rest of receiving. In a millisecond's
# rest some gather in the socket, which holds far more than a server sends meanwhile: no time is lost.
_GATHERED_BYTES, _GATHER_S = 64 << 10, 0.001
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# invalid_parameter_value before Postgres 17, undefined_object since.
_NO_SUCH_SNAPSHOT = ("22023", "42704")
_SNAPSHOT = "SELECT pg_catalog.pg_current_snapshot()::text, pg_catalog.pg_is_in_recovery()"


@dataclass(frozen=True, slots=True)
class CopyBatch:
    """Rows of a range, typed, and by column name the values that no Arrow type holds."""

    rows: pa.RecordBatch
    rejected: Mapping[str, Rejected] = field(default_factory=dict)
    bytes: int = 0
    """As they came from the server."""
    snapshot: Snapshot | None = None
    """The range's own snapshot; None under an exported one."""


def copy_columns(
    schema: ReplicatedTableSchema, options: TypeOptions | None = None
) -> tuple[tuple[str, Conversion], ...]:
    """Names and conversions of the replicated columns, in table order: what `read_range` converts with."""
    chosen = options or TypeOptions()
    return tuple((column.name, conversion_for(column.type, column.typmod, chosen)) for column in schema.columns)


def read_range(
    config: PgConnectionConfig,
    part: CopyRange,
    columns: Sequence[tuple[str, Conversion]],
    *,
    snapshot_name: str | None = None,
    batch_bytes: int = _BATCH_BYTES,
    pipeline: str | int | None = None,
) -> Iterator[CopyBatch]:
    """The range's rows in batches of about `batch_bytes` of CSV, under the exported snapshot or one of its own.

    There is always a batch, if an empty one: it tells the columns and the snapshot. Raises SourceError.
    """
    if tuple(name for name, _ in columns) != part.columns:
        msg = "the conversions are not those of the range's columns"
        raise ValueError(msg)
    reading = _Reading(config, part, snapshot_name, batch_bytes, pipeline)
    rows, batches = 0, 0
    try:
        reading.start()
        for piece in reading.pieces():
            read = read_copy_csv(piece, columns)
            rows, batches = rows + read.batch.num_rows, batches + 1
            yield CopyBatch(read.batch, read.rejected, len(piece), reading.snapshot)
        if rows != reading.copied:
            msg = f"a COPY sent {reading.copied} rows, of which {rows} were read"
            raise ProtocolError(msg)
        if not batches:
            yield CopyBatch(read_copy_csv(b"", columns).batch, snapshot=reading.snapshot)
    finally:
        reading.close()


@dataclass(frozen=True, slots=True)
class _End:
    error: BaseException | None = None


class _Reading:
    """The thread with its event loop. The caller's side: start, pieces, close; the rest runs in the thread."""

    def __init__(
        self,
        config: PgConnectionConfig,
        part: CopyRange,
        snapshot_name: str | None,
        batch_bytes: int,
        pipeline: str | int | None,
    ) -> None:
        self.snapshot: Snapshot | None = None
        self.copied = 0
        self._config, self._part, self._pipeline = config, part, pipeline
        self._snapshot_name = snapshot_name
        self._cutter = RowCutter(batch_bytes)
        self._queue: SimpleQueue[memoryview | _End] = SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(_WAITING_PIECES)
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-copy", daemon=True)

    def start(self) -> None:
        self._task = self._loop.create_task(self._copy())
        self._thread.start()

    def pieces(self) -> Iterator[memoryview]:
        while not isinstance(item := self._queue.get(), _End):
            self._loop.call_soon_threadsafe(self._room.release)
            yield item
        if item.error is not None:
            raise item.error

    def close(self) -> None:
        """End the COPY if it still runs, and everything that was opened for it."""
        if self._thread.ident is not None:
            assert self._task is not None
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        end = _End()
        assert self._task is not None
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            end = _End(HeadraceError("the copy of a range was cancelled"))
        except Exception as error:  # noqa: BLE001 - raised again by pieces(), in the caller's thread
            end = _End(error)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._queue.put(end)

    async def _copy(self) -> None:
        connection = await open_session(self._config, pipeline=self._pipeline)
        try:
            await self._begin(connection)
            with translated_asyncpg_errors(f"cannot copy {self._part.relation}"):
                sql = self._part.copy_sql()
                status = await connection.copy_from_query(sql, output=self._take, format="csv")
            self.copied = int(status.split()[-1])
            await self._put(self._cutter.finish())
        finally:
            await _close(connection)

    async def _begin(self, connection: Any) -> None:
        with translated_asyncpg_errors(f"cannot begin the copy of {self._part.relation}"):
            await connection.execute(_BEGIN)
        if self._snapshot_name is not None:
            await self._adopt(connection, self._snapshot_name)
        else:
            await self._take_snapshot(connection)

    async def _adopt(self, connection: Any, name: str) -> None:
        quoted = "'" + name.replace("'", "''") + "'"
        try:
            with translated_asyncpg_errors("cannot adopt the snapshot"):
                await connection.execute(f"SET TRANSACTION SNAPSHOT {quoted}")
        except HeadraceError as error:
            if getattr(error, "sqlstate", None) not in _NO_SUCH_SNAPSHOT:
                raise
            raise SourceSnapshotTooOld("the exported snapshot is no longer held") from error

    async def _take_snapshot(self, connection: Any) -> None:
        """Lock first: a table that is rewritten after the snapshot was taken looks empty to it."""
        with translated_asyncpg_errors(f"cannot take a snapshot of {self._part.relation}"):
            if self._part.bounds is not None:
                only = "" if self._part.descendants else "ONLY "
                await connection.execute(f"LOCK TABLE {only}{self._part.relation.quoted} IN ACCESS SHARE MODE")
            text, standby = await connection.fetchrow(_SNAPSHOT)
        if standby:
            msg = "a standby's own snapshot does not tell running transactions apart"
            raise SourceUnsupported(msg, hint="copy the table by ctid, under an exported snapshot")
        self.snapshot = Snapshot.parse(text)

    async def _take(self, data: bytes) -> None:
        await self._put(self._cutter.feed(data))
        if len(data) < _GATHERED_BYTES:
            await asyncio.sleep(_GATHER_S)

    async def _put(self, piece: memoryview | None) -> None:
        if piece:
            await self._room.acquire()
            self._queue.put(piece)


async def _close(connection: Any) -> None:
    """Politely, which also waits for a cancelled COPY to end; then not."""
    try:
        with translated_asyncpg_errors("cannot close a connection"):
            await connection.close(timeout=_CLOSE_TIMEOUT_S)
    except HeadraceError:
        connection.terminate()
