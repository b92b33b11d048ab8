"""A table's columns as a task needs them: the Arrow schema that is written, with field ids, and the plan of metrics."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    StatisticsCollector,
    compute_statistics_plan,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.schema import Schema

from ..soft_delete import DELETED
from .variant import VARIANT, variant_array
from .variant_schema import readable_schema, variant_columns, variant_paths, variant_statistics

__all__ = [
    "FIELD_ID",
    "ColumnPlan",
    "as_written",
    "column_plan",
    "conformed",
    "lost_texts",
    "physical_name",
    "struct_rows",
]

FIELD_ID = b"PARQUET:field_id"

_SCHEMAS_KEPT = 256


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPlan:
    """A table's current schema, in the forms that writing needs."""

    iceberg: Schema
    arrow: pa.Schema
    """With plain (32-bit offset) strings and lists, and the field id on every field, nested ones too."""
    written: pa.Schema
    """The same by the names that files have: others where the schema says `mapped-columns`."""
    statistics: Mapping[int, StatisticsCollector]
    paths: Mapping[str, int]
    """Field ids by path of the Parquet column, as it is written."""
    variants: tuple[str, ...]
    """The columns that are VARIANT; rows have them as JSON texts."""

    def field_id(self, name: str) -> int:
        return int(self.arrow.field(name).metadata[FIELD_ID])


@lru_cache(maxsize=_SCHEMAS_KEPT)
def column_plan(schema_json: str) -> ColumnPlan:
    iceberg = readable_schema(schema_json)
    variants = variant_columns(schema_json)
    # Names are not made fit for Avro, as Iceberg's writers in Java do: readers go by field id, and Parquet takes any.
    in_files = readable_schema(_by_physical_name(schema_json))
    return ColumnPlan(
        iceberg,
        _arrow_schema(iceberg, variants),
        _arrow_schema(in_files, variants),
        {**compute_statistics_plan(iceberg, {}), **variant_statistics(variants)},
        {**parquet_path_to_id_mapping(in_files), **variant_paths(variants)},
        tuple(variants),
    )


def _arrow_schema(iceberg: Schema, variants: Collection[str]) -> pa.Schema:
    return pa.schema(
        [
            field.with_type(VARIANT if field.name in variants else _plain_type(field.type))
            for field in schema_to_pyarrow(iceberg, include_field_ids=True)
        ]
    )


def _by_physical_name(schema_json: str) -> str:
    """The schema with the names that files have."""
    schema = json.loads(schema_json)
    return json.dumps(_renamed(schema)) if schema.get("mapped-columns") else schema_json


def physical_name(field: Mapping[str, Any]) -> str:
    """A field's name in files, where columns are mapped: ids are given once, so these are too."""
    return str(field.get("physical-name") or f"c{field['id']}")


def _renamed(level: Mapping[str, Any]) -> dict[str, Any]:
    fields = []
    for field in level["fields"]:
        kind = field["type"]
        nested = isinstance(kind, dict) and kind["type"] == "struct"
        fields.append({**field, "name": physical_name(field), "type": _renamed(kind) if nested else kind})
    return {**level, "fields": fields}


def as_written(rows: pa.Table, columns: ColumnPlan) -> pa.Table:
    """Rows of the table's columns by the names that files have."""
    if columns.written is columns.arrow or columns.written.equals(columns.arrow):
        return rows
    arrays = [
        pa.chunked_array([_by_place(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(rows.columns, columns.written, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=columns.written)


def _by_place(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(wanted) or array.type.equals(wanted):
        return array
    children = [_by_place(array.field(place), field.type) for place, field in enumerate(wanted)]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())


def conformed(batch: pa.RecordBatch, arrow: pa.Schema) -> pa.RecordBatch:
    """The batch in the table's columns, in their order; one that it lacks is NULL, the flag of a deleted row false."""
    names = {name: position for position, name in enumerate(batch.schema.names)}
    arrays = [
        _typed(batch.column(names[field.name]), field.type) if field.name in names else _absent(field, batch.num_rows)
        for field in arrow
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def lost_texts(given: pa.RecordBatch | pa.Table, made: pa.RecordBatch | pa.Table) -> int:
    """How many JSON texts became NULL when `made` was made of `given`: no variant can hold them."""
    variants = [field.name for field in made.schema if field.type.equals(VARIANT) and field.name in given.schema.names]
    return sum(made.column(name).null_count - given.column(name).null_count for name in variants)


def struct_rows(structs: pa.ChunkedArray, columns: ColumnPlan) -> pa.Table:
    """Rows that come as structs, in the table's columns. Any of them may be NULL: a delete has only its key."""
    nullable = pa.schema([field.with_nullable(nullable=True) for field in columns.arrow])
    batches = [conformed(pa.RecordBatch.from_struct_array(chunk), nullable) for chunk in structs.chunks]
    return pa.Table.from_batches(batches, schema=nullable)


def _typed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type.equals(wanted):
        return array
    if wanted.equals(VARIANT):
        return variant_array(array)
    return _struct(array, wanted) if pa.types.is_struct(wanted) else array.cast(wanted)


def _struct(array: pa.StructArray, wanted: pa.DataType) -> pa.StructArray:
    """By name, as whole rows are: the old values of a change log, whose columns grow more."""
    names = {field.name: place for place, field in enumerate(array.type)}
    children = [
        _typed(array.field(names[field.name]), field.type) if field.name in names else pa.nulls(len(array), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())


def _absent(field: pa.Field, size: int) -> pa.Array:
    if field.name == DELETED:
        return pa.repeat(pa.scalar(value=False), size)
    return pa.nulls(size, field.type)


def _plain(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))


def _plain_type(wide: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(wide):
        return pa.string()
    if pa.types.is_large_binary(wide):
        return pa.binary()
    if pa.types.is_large_list(wide) or pa.types.is_list(wide):
        return pa.list_(_plain(wide.value_field))
    if pa.types.is_map(wide):
        return pa.map_(_plain(wide.key_field), _plain(wide.item_field))
    if pa.types.is_struct(wide):
        return pa.struct([_plain(field) for field in wide])
    return wide
