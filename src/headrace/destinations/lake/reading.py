"""Reading data files: columns by field id, row groups by choice. Footers and small key columns are kept in memory, as
long as their files are part of the table.

Names are not relied on: another engine may have written the file, or the column had another name then.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DestinationError, RetryPolicy
from ...remedies import RESYNC
from .columns import FIELD_ID, column_plan
from .deletion_vectors import Positions
from .files import LiveFile, TableLayout
from .places import file_io
from .projection import projected

__all__ = ["OpenedFile", "forget_replaced", "read_rows"]

# Of the memory of a process that merges, the driver or a worker, of which there is one for each core: together some 200
# MB, counted as they really are.
_FOOTERS_BYTES = 128 << 20
_COLUMNS_BYTES = 64 << 20
# What Arrow makes of a footer, by its bytes in the file: measured, nine times as much for a table of 30 columns.
_FOOTER_GROWTH = 9
# What anything kept takes beside its own bytes: its objects, the file's name. Measured, 1.6 kB for the key of a file of
# 20 rows, ten times the key itself, and a stream of small batches has such files only.
_ENTRY_BYTES = 2 << 10
# One large file must not push all small ones out, and gains least: it is decoded much faster than it is fetched.
_LARGEST_COLUMN_BYTES = 8 << 20

# What Arrow says of bytes that are no Parquet file, or not the ones that were written.
_DAMAGE = (
    "checksum", "thrift", "magic bytes", "footer", "orrupt", "nexpected end of stream", "decompress", "alformed",
    "ZSTD", "page", "Invalid number", "nknown encoding", "not yet implemented",
)  # fmt: skip

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class _Key:
    """Identify a cached value: a table (by data location), a data file, and a column; no column for a footer."""

    table: str
    path: str
    field_id: int | None = None


class _Kept(Generic[_Value]):
    """The values used last, up to a number of bytes. Data files never change, so nothing here grows stale."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._values: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._tables: dict[str, set[_Key]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _Key) -> _Value | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value, size + _ENTRY_BYTES
            self._tables.setdefault(key.table, set()).add(key)
            self._size += size + _ENTRY_BYTES
            while self._size > self._limit:
                self._drop(next(iter(self._values)))

    def keep_only(self, table: str, paths: Set[str]) -> None:
        """Drop what is kept of other files of the table."""
        with self._lock:
            for key in [key for key in self._tables.get(table, ()) if key.path not in paths]:
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        self._size -= self._values.pop(key)[1]
        keys = self._tables[key.table]
        keys.remove(key)
        if not keys:
            del self._tables[key.table]


_footers: _Kept[pq.FileMetaData] = _Kept(_FOOTERS_BYTES)
_columns: _Kept[pa.ChunkedArray] = _Kept(_COLUMNS_BYTES)


def forget_replaced(layout: TableLayout, files: Iterable[LiveFile]) -> None:
    """Keep nothing of files that the table no longer has: `files` are all that it has.

    A stream adds a file with every batch and compaction replaces it soon. Without this a process would fill up with the
    footers of files that are gone.
    """
    paths = {file.path for file in files}
    for kept in (_footers, _columns):
        kept.keep_only(layout.data_location, paths)


@dataclass(frozen=True, slots=True)
class _FileColumn:
    name: str
    leaf: int
    """The place of its first Parquet column."""
    field: pa.Field

    @property
    def type(self) -> pa.DataType:
        return self.field.type


class OpenedFile:
    """A data file whose footer is known; its content is opened when it is read."""

    def __init__(self, layout: TableLayout, file: LiveFile) -> None:
        self.file = file
        self._io = file_io(layout)
        self._plan = column_plan(layout.schema_json)
        self._reader: pq.ParquetFile | None = None
        self._table = layout.data_location
        self._metadata = _footers.get(_Key(self._table, file.path))
        self._columns: dict[int | str, _FileColumn] | None = None

    @property
    def metadata(self) -> pq.FileMetaData:
        if self._metadata is None:
            self._metadata = self._open().metadata
            _footers.put(
                _Key(self._table, self.file.path), self._metadata, self._metadata.serialized_size * _FOOTER_GROWTH
            )
        return self._metadata

    def column(self, name: str) -> _FileColumn | None:
        """What the file has of the table's column of this name now."""
        if self._columns is None:
            self._columns = _by_field_id(self.metadata)
        found = self._columns.get(self._plan.field_id(name))
        return found if found is not None else self._columns.get(name)

    def kept(self, name: str) -> pa.ChunkedArray | None:
        """The whole column, if it is in memory."""
        column, wanted = _columns.get(self._key(name)), self._plan.arrow.field(name).type
        # The table's column may have been widened since.
        return column if column is None or column.type.equals(wanted) else column.cast(wanted)

    def read(self, names: Sequence[str], groups: Sequence[int]) -> list[pa.ChunkedArray]:
        """Columns of row groups, in the table's types; one that the file lacks has its initial value, or NULL."""
        present = {name: column for name in names if (column := self.column(name)) is not None}
        # `columns` also takes what is nested below a name with a dot, so the result is picked by name again.
        reader = self._open()
        with self._damage_named():
            table = reader.read_row_groups(
                list(groups), columns=[column.name for column in present.values()], use_threads=False
            )
        rows = sum(self.metadata.row_group(group).num_rows for group in groups)
        columns = []
        for name in names:
            wanted = self._plan.arrow.field(name)
            if name in present:
                column = table.column(present[name].name)
                columns.append(projected(column, present[name].field, wanted))
            else:
                columns.append(self._initial(name, wanted.type, rows))
        return columns

    def keep(self, names: Sequence[str], columns: Sequence[pa.ChunkedArray]) -> None:
        """Have whole columns in memory for the next one who looks for rows: keys, that is, and not what they name."""
        for name, column in zip(names, columns, strict=True):
            if column.nbytes <= _LARGEST_COLUMN_BYTES:
                _columns.put(self._key(name), column, column.nbytes)

    def _key(self, name: str) -> _Key:
        return _Key(self._table, self.file.path, self._plan.field_id(name))

    def _initial(self, name: str, wanted: pa.DataType, rows: int) -> pa.ChunkedArray:
        initial = self._plan.iceberg.find_field(self._plan.field_id(name)).initial_default
        return pa.chunked_array([pa.repeat(pa.scalar(initial, wanted), rows)])

    def _open(self) -> pq.ParquetFile:
        if self._reader is None:
            source = self._io.new_input(self.file.path).open()
            with self._damage_named():
                # Columns of a row group in few large reads: an object store answers each slowly.
                self._reader = pq.ParquetFile(
                    source, metadata=self._metadata, pre_buffer=True, page_checksum_verification=True
                )
        return self._reader

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Turn an error of Arrow's about the file's content into one that names the file."""
        try:
            yield
        except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            # Who cannot reach a file raises OSError as well.
            if isinstance(error, OSError) and not any(words in str(error) for words in _DAMAGE):
                raise
            raise DestinationError(
                f"the data file {self.file.path} is damaged",
                hint=f"restore the file, or copy the table again: {RESYNC}",
                retry=RetryPolicy.MANUAL,
            ) from None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close(force=True)
            self._reader = None


def read_rows(layout: TableLayout, file: LiveFile, positions: Positions, names: Sequence[str]) -> pa.Table:
    """Columns of single rows of a file, in the order of the positions. Row groups without such a row are not read."""
    with closing(OpenedFile(layout, file)) as one:
        sizes = [one.metadata.row_group(group).num_rows for group in range(one.metadata.num_row_groups)]
        starts = np.concatenate(([0], np.cumsum(sizes)))
        group_of = np.searchsorted(starts, positions, side="right") - 1
        groups = np.unique(group_of)
        columns = one.read(names, groups.tolist())
        # Where each group begins in what was read, less where it begins in the file.
        shift = np.zeros(len(sizes), dtype=np.int64)
        shift[groups] = np.concatenate(([0], np.cumsum(np.asarray(sizes)[groups])[:-1])) - starts[groups]
        at = pa.array(positions + shift[group_of])
        return pa.Table.from_arrays([column.take(at) for column in columns], names=list(names))


def _by_field_id(metadata: pq.FileMetaData) -> dict[int | str, _FileColumn]:
    """The file's top-level columns by field id; by name where it has no ids at all."""
    arrow = metadata.schema.to_arrow_schema()
    leaf, columns, ids = 0, [], []
    for field in arrow:
        columns.append(_FileColumn(field.name, leaf, field))
        ids.append((field.metadata or {}).get(FIELD_ID))
        leaf += _leaves(field.type)
    if not any(ids):
        return {column.name: column for column in columns}
    return {int(number): column for number, column in zip(ids, columns, strict=True) if number is not None}


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields)) if kind.num_fields else 1
