"""Partitions: which of them each row belongs to, and how one is written in paths and in the description of a file."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, Transform, YearTransform

from ..fold.codes import combined_codes, value_codes
from .columns import column_plan
from .files import TableLayout

__all__ = ["UNPARTITIONED", "Partition", "Partitioning", "json_value", "partitioning"]

_SPECS_KEPT = 256
_EPOCH = datetime.date(1970, 1, 1)
_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a table, in the two ways it is written."""

    path: str
    """As `name=value/…`, empty without partitioning."""
    json: str
    """The list of its values, as Iceberg's ContentFileParser reads them."""


UNPARTITIONED = Partition("", "[]")


@dataclass(frozen=True, slots=True, eq=False)
class Partitioning:
    """A partition spec, ready to be applied to batches of the table's columns."""

    spec_id: int
    fields: tuple[_Field, ...]

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows of each partition, in their order. Each part is a copy: keeping one keeps no other alive."""
        if not self.fields or not rows.num_rows:
            yield from [(UNPARTITIONED, rows)] if rows.num_rows else []
            return
        values = [field.values(rows) for field in self.fields]
        codes = combined_codes([value_codes(pa.chunked_array([column])) for column in values])
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        ends = np.append(starts[1:], len(order))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            partition = self._partition([column[int(order[start])].as_py() for column in values])
            whole = end - start == rows.num_rows
            yield partition, rows if whole else rows.take(pa.array(order[start:end]))

    def _partition(self, values: list[Any]) -> Partition:
        pairs = list(zip(self.fields, values, strict=True))
        path = "/".join(f"{quote_plus(field.name, safe='')}={quote_plus(field.text(value))}" for field, value in pairs)
        return Partition(path, json.dumps([field.json_value(value) for field, value in pairs], ensure_ascii=False))


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    name: str
    source: str
    transform: Transform[Any, Any]
    apply: Callable[[pa.Array], pa.Array]

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        return self.apply(rows.column(self.source))

    def text(self, value: Any) -> str:
        """As Iceberg's own writers name the directory."""
        if value is None:
            return "null"
        if isinstance(self.transform, (YearTransform, MonthTransform, DayTransform, HourTransform)):
            return self.transform.to_human_string(None, _days(value))  # type: ignore[arg-type]
        if isinstance(value, bytes):
            return self.transform.to_human_string(None, value)  # type: ignore[arg-type]
        single = self.json_value(value)
        return single if isinstance(single, str) else json.dumps(single)

    def json_value(self, value: Any) -> Any:
        """Iceberg's JSON single-value form."""
        if isinstance(self.transform, DayTransform) and value is not None:
            return (_EPOCH + datetime.timedelta(days=_days(value))).isoformat()
        return json_value(value)


def partitioning(layout: TableLayout) -> Partitioning:
    return _partitioning(layout.schema_json, layout.spec_json)


@lru_cache(maxsize=_SPECS_KEPT)
def _partitioning(schema_json: str, spec_json: str) -> Partitioning:
    spec = PartitionSpec.model_validate_json(spec_json)
    schema = column_plan(schema_json).iceberg
    return Partitioning(spec.spec_id, tuple(_field(field, schema) for field in spec.fields))


def _field(field: PartitionField, schema: Schema) -> _Field:
    source = schema.find_field(field.source_id)
    return _Field(field.name, source.name, field.transform, field.transform.pyarrow_transform(source.field_type))


def _days(value: Any) -> Any:
    return (value - _EPOCH).days if isinstance(value, datetime.date) else value


def json_value(value: Any) -> Any:
    """Iceberg's JSON single-value form of a value."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.hex().upper()
    return value
