"""Destinations of each kind, each with a way to read its tables without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from delta_tables import delta_settings, read_delta
from duckdb_reading import DuckDBFile, canonical_rows, duckdb_settings
from headrace.destinations import MemoryDestination
from headrace.destinations.delta import DeltaDestination
from headrace.destinations.duckdb import DuckDBDestination
from headrace.destinations.iceberg import IcebergDestination
from lakehouse import iceberg_settings, read_table

__all__ = ["KINDS", "Site", "site"]

KINDS = ("memory", "duckdb", "iceberg", "delta")


@dataclass(frozen=True)
class Site:
    """A destination, and how its tables are read without it."""

    destination: Any
    read: Callable[[str], pa.Table]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of schema.table, as the comparing functions of `pipelining` want them."""
        return canonical_rows(self.read(table.partition(".")[2]))


def site(kind: str, root: Path) -> Site:
    if kind == "memory":
        memory = MemoryDestination()
        return Site(memory, lambda name: memory.rows(f"public.{name}"))
    if kind == "duckdb":
        path = root / "shop.duckdb"
        return Site(DuckDBDestination(duckdb_settings(path)), lambda name: DuckDBFile(path).table(("public", name)))
    warehouse = root / kind
    if kind == "iceberg":
        destination = IcebergDestination(iceberg_settings(warehouse))
        return Site(destination, lambda name: read_table(warehouse, ("public", name)))
    return Site(DeltaDestination(delta_settings(warehouse)), lambda name: read_delta(warehouse, "public", name))
