"""Variant columns in what tasks take from pyiceberg, which refuses a schema that has one.

To pyiceberg they are binary columns; what it makes of those is put right here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode, StatisticsCollector
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType

from .variant import VARIANT

__all__ = ["readable_schema", "variant_columns", "variant_paths", "variant_statistics"]


def variant_columns(schema_json: str) -> dict[str, int]:
    """Field ids by name of a table's variant columns. They stand at the top level: the only place we put them."""
    return {field["name"]: field["id"] for field in json.loads(schema_json)["fields"] if field["type"] == "variant"}


def readable_schema(schema_json: str) -> Schema:
    """The schema as pyiceberg can have it, with binary for variant."""
    value = json.loads(schema_json)
    fields = [{**field, "type": "binary"} if field["type"] == "variant" else field for field in value["fields"]]
    return Schema.model_validate({**value, "fields": fields})


def variant_statistics(columns: Mapping[str, int]) -> dict[int, StatisticsCollector]:
    """Only their sizes are told: bounds of a variant are not those of its bytes, and wrong ones would hide rows."""
    nothing = MetricsMode(MetricModeTypes.NONE)
    return {number: StatisticsCollector(number, BinaryType(), nothing, name) for name, number in columns.items()}


def variant_paths(columns: Mapping[str, int]) -> dict[str, int]:
    """Field ids by path of the Parquet columns that variants consist of."""
    return {f"{name}.{part.name}": number for name, number in columns.items() for part in VARIANT}
