"""DuckDB with its own reader of Iceberg, its extensions loaded by file: no test asks a network for them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import duckdb

__all__ = ["duckdb_with_iceberg", "local_path"]


def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    """A connection that knows `iceberg_scan`. To be closed."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "iceberg"):
        (package,) = import_module(f"duckdb_extension_{name}").__path__
        connection.execute(f"LOAD '{next(Path(package).rglob('*.duckdb_extension'))}'")
    return connection


def local_path(location: str) -> str:
    """A file's location as DuckDB takes it."""
    return location.removeprefix("file://").removeprefix("file:")
