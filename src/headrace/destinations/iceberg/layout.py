"""From an Iceberg table to what tasks must know of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..lake.contract import Wrapping
from ..lake.files import TableLayout
from .java import Java

__all__ = ["sorted_by", "table_layout"]


def table_layout(java: Java, table: Any, wrapping: Wrapping, io: Mapping[str, str]) -> TableLayout:
    """What tasks must know of the Java table."""
    properties = java.mapping(table.properties())
    location = properties.get("write.data.path") or f"{table.location()}/data"
    order_json = java.iceberg.SortOrderParser.toJson(table.sortOrder())
    schema_json = java.iceberg.SchemaParser.toJson(table.schema())
    return TableLayout(
        name=".".join(wrapping.plan.name),
        data_location=location,
        file_prefix=wrapping.fence.file_prefix,
        schema_json=schema_json,
        spec_json=java.iceberg.PartitionSpecParser.toJson(table.spec()),
        io_properties={**io, **java.mapping(table.io().properties())},
        sort_by=sorted_by(order_json, schema_json),
        sort_order_id=json.loads(order_json)["order-id"],
        target_file_bytes=int(
            properties.get("write.target-file-size-bytes", wrapping.plan.settings.maintenance.target_file_bytes)
        ),
    )


def sorted_by(order_json: str, schema_json: str) -> tuple[tuple[str, bool], ...]:
    """Columns by which the table is sorted, by their names now, and whether descending. Other transforms than the
    column itself end it: only Headrace makes sort orders of these tables.
    """
    names = {field["id"]: field["name"] for field in json.loads(schema_json)["fields"]}
    columns = []
    for field in json.loads(order_json)["fields"]:
        if field["transform"] != "identity" or field["source-id"] not in names:
            break
        columns.append((names[field["source-id"]], field["direction"] == "desc"))
    return tuple(columns)
