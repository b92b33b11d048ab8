"""Data files: rows become Parquet files of a table, split by partition, with the metrics that formats keep of them.

This is the hot path of the initial copy. Rows are gathered to row groups, so that a row group's statistics tell
something, and written at once; only rows that wait for their row group are held.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import pyarrow as pa

from .columns import column_plan, conformed, lost_texts
from .files import DataFile, TableLayout, Written
from .parquet_file import OpenFile
from .partitions import Partition, partitioning
from .places import file_io, removed

__all__ = ["write_data"]

# Few enough that a lookup skips most of a large file, enough that a scan does not notice.
_ROW_GROUP_ROWS = 128 * 1024
_ROW_GROUP_BYTES = 64 << 20
# What waits in all partitions together; above it the largest are written until half is left.
_WAITING_BYTES = 128 << 20
# Each open file of an object store holds the buffer of its upload.
_OPEN_FILES = 16


def write_data(layout: TableLayout, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write rows to new files. When it raises, it has removed what it wrote."""
    files = _Files(layout)
    try:
        for batch in batches:
            files.add(batch)
        data = files.finish()
    except BaseException:
        files.discard()
        raise
    return Written(data=data, rows=sum(file.records for file in data), lost=files.lost)


class _Waiting:
    """Rows of one partition that wait for their row group to be full."""

    __slots__ = ("batches", "bytes", "rows")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    @property
    def is_full(self) -> bool:
        return self.rows >= _ROW_GROUP_ROWS or self.bytes >= _ROW_GROUP_BYTES


class _Files:
    """The files of one call: what waits, what is open, what is done."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._columns = column_plan(layout.schema_json)
        self._partitioning = partitioning(layout)
        self._io = file_io(layout)
        self._waiting: dict[Partition, _Waiting] = {}
        self._open: OrderedDict[Partition, OpenFile] = OrderedDict()
        self._paths: list[str] = []
        self._done: list[DataFile] = []
        self.lost = 0

    def add(self, batch: pa.RecordBatch) -> None:
        made = conformed(batch, self._columns.arrow)
        self.lost += lost_texts(batch, made)
        for partition, rows in self._partitioning.split(made):
            waiting = self._waiting.setdefault(partition, _Waiting())
            waiting.add(rows)
            if waiting.is_full:
                self._write(partition)
        if sum(waiting.bytes for waiting in self._waiting.values()) > _WAITING_BYTES:
            self._make_room()

    def finish(self) -> tuple[DataFile, ...]:
        for partition in list(self._waiting):
            self._write(partition)
        for partition in list(self._open):
            self._close(partition)
        return tuple(self._done)

    def discard(self) -> None:
        for file in self._open.values():
            file.abandon()
        removed(self._io, self._paths)

    def _make_room(self) -> None:
        by_size = sorted(self._waiting.items(), key=lambda item: item[1].bytes, reverse=True)
        left = sum(waiting.bytes for _, waiting in by_size)
        for partition, waiting in by_size:
            if left <= _WAITING_BYTES // 2:
                return
            left -= waiting.bytes
            self._write(partition)

    def _write(self, partition: Partition) -> None:
        """Write what waits: a row group, or more where it came in large batches."""
        rows = pa.Table.from_batches(self._waiting.pop(partition).batches)
        if self._layout.sort_by:
            rows = _sorted(rows, self._layout.sort_by)
        file = self._opened(partition, rows)
        file.write(rows, _ROW_GROUP_ROWS)
        if file.size >= self._layout.target_file_bytes:
            self._close(partition)

    def _opened(self, partition: Partition, rows: pa.Table) -> OpenFile:
        if partition in self._open:
            self._open.move_to_end(partition)
            return self._open[partition]
        if len(self._open) >= _OPEN_FILES:
            self._close(next(iter(self._open)))
        file = OpenFile(self._layout, self._columns, partition, rows)
        self._paths.append(file.path)
        self._open[partition] = file
        return file

    def _close(self, partition: Partition) -> None:
        file = self._open[partition]
        self._done.append(file.close(self._partitioning.spec_id))
        del self._open[partition]


def _sorted(rows: pa.Table, sort_by: tuple[tuple[str, bool], ...]) -> pa.Table:
    # NULLs stand where Iceberg has them unless told: first when ascending, last when descending.
    keys = [
        (name, "descending", "at_end") if descending else (name, "ascending", "at_start")
        for name, descending in sort_by
    ]
    return rows.take(pa.compute.sort_indices(rows, sort_keys=keys))
