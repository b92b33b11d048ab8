"""Rows with the names that their columns have at the destination."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["Renamed", "renamed_schema"]


def renamed_schema(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    """The schema with other names; also those of the fields of structs, which are rows of before."""
    return pa.schema([_renamed(field, names) for field in schema])


def _renamed(field: pa.Field, names: Mapping[str, str]) -> pa.Field:
    if pa.types.is_struct(field.type):
        field = field.with_type(pa.struct([_renamed(child, names) for child in field.type]))
    return field.with_name(names.get(field.name, field.name))


@dataclass(frozen=True, slots=True)
class Renamed:
    """Makes batches with a schema of batches that differ from it in names only; pickled, for tasks."""

    schema: pa.Schema
    before: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    """What is done to a batch first."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = batch if self.before is None else self.before(batch)
        columns = [_with_type(column, field.type) for column, field in zip(batch.columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _with_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(kind):
        return column
    # A cast would look for fields by name.
    return pa.StructArray.from_arrays(column.flatten(), fields=list(kind), mask=column.is_null())
