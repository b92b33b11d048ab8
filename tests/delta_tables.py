"""Delta tables read back without Headrace and without Spark: by DuckDB's own reader."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from headrace.config.delta import DeltaConfig
from headrace.destinations.delta.paths import table_location
from lakehouse import canonical_rows

__all__ = ["DeltaLake", "delta_settings", "duckdb_with_delta", "read_delta", "table_directory"]


def delta_settings(warehouse: Path, **settings: Any) -> DeltaConfig:
    """A warehouse on disk; nothing happens to it by itself unless the test asks for it."""
    given = {"maintenance": {"enabled": False}, **settings}
    return DeltaConfig.model_validate({"warehouse": str(warehouse), **given})


def table_directory(warehouse: Path, *name: str) -> Path:
    return Path(table_location(str(warehouse), name))


def duckdb_with_delta() -> duckdb.DuckDBPyConnection:
    """A connection that knows `delta_scan`, by its extension's file: no test asks a network for it. To be closed."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    (package,) = import_module("duckdb_extension_delta").__path__
    connection.execute(f"LOAD '{next(Path(package).rglob('*.duckdb_extension'))}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def read_delta(warehouse: Path, *name: str) -> pa.Table:
    """All rows of a table; raises if there is none."""
    with duckdb_with_delta() as connection:
        location = str(table_directory(warehouse, *name)).replace("'", "''")
        found = connection.execute(f"SELECT * FROM delta_scan('{location}')").arrow()
        return found.read_all() if isinstance(found, pa.RecordBatchReader) else found


class DeltaLake:
    """All tables of a warehouse, as the comparing functions of `pipelining` want a destination."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse

    def rows(self, table: str) -> Sequence[dict[str, Any]]:
        return canonical_rows(read_delta(self._warehouse, *table.split(".")))
