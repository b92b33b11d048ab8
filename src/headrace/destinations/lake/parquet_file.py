"""One Parquet file while it is written, and its description for the commit once it is closed."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import DataFileStatistics, data_file_statistics_from_parquet_metadata

from ...remedies import errors_of_file
from .columns import ColumnPlan, as_written
from .files import DataFile, TableLayout
from .partitions import Partition
from .places import file_io, new_path
from .variant_files import VariantSink

__all__ = ["OpenFile"]

# Measured on TPC-C's tables: level 3 takes twice the time for no gain, Snappy a fifth less for half as much again.
_ZSTD_LEVEL = 1
# A dictionary pays where values recur. For others (most keys, names, texts) it costs a third of the whole writing, and
# for numbers zstd does as well without.
_SAMPLE_ROWS = 2048
_RECURRING = 1 / 16


class OpenFile:
    """A data file being written. A file that cannot be created raises here, and leaves nothing."""

    def __init__(self, layout: TableLayout, columns: ColumnPlan, partition: Partition, first: pa.Table) -> None:
        self.path = new_path(layout, ".parquet", partition.path)
        self._layout = layout
        self._columns = columns
        self._partition = partition
        self._writes = 0
        # Names are fresh: asking whether the file is there would be one request more.
        stream = file_io(layout).new_output(self.path).create(overwrite=True)
        self._sink = VariantSink(stream, columns.variants) if columns.variants else stream
        self._writer = pq.ParquetWriter(
            self._sink,
            columns.written,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=_recurring(as_written(first, columns)),
            # As Iceberg's specification wants decimals of up to 18 digits.
            store_decimal_as_integer=True,
            store_schema=False,
            write_page_index=True,
            write_page_checksum=True,
        )

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def write(self, rows: pa.Table, row_group_rows: int) -> None:
        """Write rows as row groups of about this many, none of them a small rest."""
        groups = max(round(rows.num_rows / row_group_rows), 1)
        with errors_of_file(self.path):
            self._writer.write_table(as_written(rows, self._columns), row_group_size=-(-rows.num_rows // groups))
        self._writes += 1

    def close(self, spec_id: int) -> DataFile:
        with errors_of_file(self.path):
            if isinstance(self._sink, VariantSink):
                self._sink.finish(self._writer)
            else:
                self._writer.close()
            size = self.size
            self._sink.close()
        metadata = self._writer.writer.metadata
        statistics = data_file_statistics_from_parquet_metadata(
            metadata, dict(self._columns.statistics), dict(self._columns.paths)
        )
        entry = {
            "spec-id": spec_id,
            "content": "data",
            "file-path": self.path,
            "file-format": "parquet",
            "partition": json.loads(self._partition.json),
            "file-size-in-bytes": size,
            "record-count": metadata.num_rows,
            **_metrics(statistics),
        }
        # Rows are sorted each time some are written; only a file written at once is sorted as a whole.
        if self._layout.sort_order_id and self._writes == 1:
            entry["sort-order-id"] = self._layout.sort_order_id
        return DataFile(self.path, size, metadata.num_rows, json.dumps(entry, ensure_ascii=False))

    def abandon(self) -> None:
        """Let go of it after an error, whatever its state."""
        # The error that led here is the one to be seen.
        with contextlib.suppress(Exception):
            self._writer.close()
        with contextlib.suppress(Exception):
            self._sink.close()


def _recurring(rows: pa.Table) -> list[str] | bool:
    """Text columns whose values recur, by the first rows. A list names columns as Parquet does; empty means all."""
    sample = rows.slice(0, _SAMPLE_ROWS)
    names = [
        field.name
        for field in rows.schema
        if (pa.types.is_string(field.type) or pa.types.is_binary(field.type))
        and pc.count_distinct(sample.column(field.name), mode="all").as_py() <= max(sample.num_rows * _RECURRING, 1)
    ]
    return names or False


def _metrics(statistics: DataFileStatistics) -> dict[str, Any]:
    found = statistics.to_serialized_dict()
    counts = {
        "column-sizes": found["column_sizes"],
        "value-counts": found["value_counts"],
        "null-value-counts": found["null_value_counts"],
        "nan-value-counts": found["nan_value_counts"],
    }
    bounds = {"lower-bounds": found["lower_bounds"], "upper-bounds": found["upper_bounds"]}
    return {
        **{name: {"keys": list(values), "values": list(values.values())} for name, values in counts.items()},
        **{
            name: {"keys": list(values), "values": [value.hex().upper() for value in values.values()]}
            for name, values in bounds.items()
        },
        "split-offsets": found["split_offsets"],
    }
