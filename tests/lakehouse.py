"""Iceberg tables read back without Headrace: through pyiceberg."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from headrace.config.iceberg import IcebergConfig
from headrace.testing.canonical import canonical_column

__all__ = ["Lake", "canonical_rows", "iceberg_settings", "lake", "read_table"]


def iceberg_settings(warehouse: Path, **settings: Any) -> IcebergConfig:
    """A warehouse on disk; nothing happens to it by itself unless the test asks for it."""
    given = {"maintenance": {"enabled": False}, **settings}
    return IcebergConfig.model_validate({"warehouse": str(warehouse), **given})


def lake(warehouse: Path) -> Catalog:
    return load_catalog(
        "headrace",
        type="sql",
        uri=f"sqlite:///{warehouse}/catalog.db",
        warehouse=f"file://{warehouse}",
        init_catalog_tables="false",
    )


def read_table(warehouse: Path, name: str | tuple[str, ...]) -> pa.Table:
    catalog = lake(warehouse)
    try:
        return catalog.load_table(name).scan().to_arrow()
    finally:
        catalog.close()


def canonical_rows(table: pa.Table) -> Sequence[dict[str, Any]]:
    columns = [canonical_column(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


class Lake:
    """All tables of a catalog, as the comparing functions of `pipelining` want a destination."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def rows(self, table: str) -> Sequence[dict[str, Any]]:
        return canonical_rows(self._catalog.load_table(table).scan().to_arrow())
