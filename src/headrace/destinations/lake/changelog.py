"""Writes a table that is a log of changes, in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from ...events import Truncate
from ...lsn import Lsn
from ..change_log import logged_changes, logged_copy, logged_copy_again, logged_truncate
from .data_files import write_data
from .files import TableLayout, Written
from .variant_schema import readable_schema

__all__ = ["CopiedRows", "LoggedChanges", "log_copy_again", "log_truncate"]


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Writes rows of a copy."""

    layout: TableLayout
    schema: pa.Schema
    """Of the log."""
    position: Lsn
    """Of the copy in it."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Written:
        return write_data(self.layout, (logged_copy(batch, self.schema, self.position) for batch in batches))


@dataclass(frozen=True, slots=True)
class LoggedChanges:
    """Writes changes as they came (`pgoutput.changes`)."""

    layout: TableLayout
    schema: pa.Schema
    version: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Written:
        logged = (logged_changes(batch, self.schema, self.version) for batch in batches if batch.num_rows)
        return write_data(self.layout, logged)


def log_truncate(layout: TableLayout, truncate: Truncate, version: int = 0) -> Written:
    return write_data(layout, iter([logged_truncate(truncate, _columns(layout), version)]))


def log_copy_again(layout: TableLayout, position: Lsn) -> Written:
    return write_data(layout, iter([logged_copy_again(_columns(layout), position)]))


def _columns(layout: TableLayout) -> pa.Schema:
    return schema_to_pyarrow(readable_schema(layout.schema_json), include_field_ids=False)
