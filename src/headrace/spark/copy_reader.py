"""Reads ranges of a table's initial copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from ..config.connection import PgConnectionConfig
from ..errors import UnrepresentableValue
from ..initial_copy.held_reader import read_held_range
from ..initial_copy.ranges import CopyRange
from ..initial_copy.reader import CopyBatch, copy_columns, read_range
from ..pgtypes.registry import TypeOptions
from ..schema import ReplicatedTableSchema
from .part import Read
from .quarantine import rejected_rows, require_keys

__all__ = ["CopyReader", "HeldCopyReader", "row_schema"]

_DEFAULTS = TypeOptions()


@dataclass(frozen=True, slots=True)
class CopyReader:
    """Rows of the ranges it is called with, under an exported snapshot that the driver holds."""

    connection: PgConnectionConfig
    schema: ReplicatedTableSchema
    snapshot_name: str
    pipeline_id: int
    options: TypeOptions = _DEFAULTS
    quarantine: bool = True

    def __call__(self, part: CopyRange) -> Iterator[Read]:
        columns = copy_columns(self.schema, self.options)
        batches = read_range(
            self.connection, part, columns, snapshot_name=self.snapshot_name, pipeline=self.pipeline_id
        )
        for batch in batches:
            yield _read(self.schema, batch, quarantine=self.quarantine)


@dataclass(frozen=True, slots=True)
class HeldCopyReader:
    """Rows of small ranges, on the connection that holds the snapshot: in the driver only. Raises TooLarge."""

    connection: psycopg.Connection[Any]
    schema: ReplicatedTableSchema
    options: TypeOptions = _DEFAULTS
    quarantine: bool = True

    def __call__(self, part: CopyRange) -> Iterator[Read]:
        batch = read_held_range(self.connection, part, copy_columns(self.schema, self.options))
        yield _read(self.schema, batch, quarantine=self.quarantine)


def _read(schema: ReplicatedTableSchema, batch: CopyBatch, *, quarantine: bool) -> Read:
    rejected = None
    if batch.rejected:
        require_keys(schema, batch.rejected.keys())
        if not quarantine:
            names = ", ".join(sorted(batch.rejected))
            msg = f"table {schema.table.name} has values in {names} that no destination type holds"
            raise UnrepresentableValue(msg)
        rejected = rejected_rows(schema, batch.rows, batch.rejected)
    return Read(batch.rows, rejected, batch.bytes)


def row_schema(schema: ReplicatedTableSchema, options: TypeOptions = _DEFAULTS) -> pa.Schema:
    """The columns a CopyReader yields."""
    return pa.schema([pa.field(name, conversion.arrow_type) for name, conversion in copy_columns(schema, options)])
