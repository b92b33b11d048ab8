"""Delta tables read back without Headrace and without Spark: by DuckDB's own reader."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pyarrow as pa

from headrace.config.delta import DeltaConfig
from headrace.destinations.delta.paths import table_location
from headrace.testing.s3 import S3Server
from lakehouse import canonical_rows

__all__ = ["DeltaBucket", "DeltaLake", "delta_settings", "duckdb_with_delta", "read_delta", "table_directory"]


def delta_settings(warehouse: Path, **settings: Any) -> DeltaConfig:
    """A warehouse on disk; nothing happens to it by itself unless the test asks for it."""
    given = {"maintenance": {"enabled": False}, **settings}
    return DeltaConfig.model_validate({"warehouse": str(warehouse), **given})


def table_directory(warehouse: Path, *name: str) -> Path:
    return Path(table_location(str(warehouse), name))


def duckdb_with_delta(*more: str) -> duckdb.DuckDBPyConnection:
    """A connection that knows `delta_scan`, by its extension's file: no test asks a network for it. To be closed."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for extension in (*more, "delta"):
        (package,) = import_module(f"duckdb_extension_{extension}").__path__
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


class DeltaBucket:
    """All tables of a directory on S3, read by DuckDB with keys of its own."""

    def __init__(self, s3: S3Server, directory: str) -> None:
        self._root = f"{s3.bucket}/{directory}"
        self._files = fsspec.filesystem("s3", **s3.storage_options, use_listings_cache=False)
        given = {"key_id": s3.access_key, "secret": s3.secret_key, "endpoint": f"127.0.0.1:{s3.port}"}
        given |= {"url_style": "path", "use_ssl": "false", "region": "us-east-1"}
        self._secret = ", ".join(f"{name} '{value}'" for name, value in given.items())

    def rows(self, table: str) -> Sequence[dict[str, Any]]:
        with duckdb_with_delta("httpfs") as connection:
            connection.execute(f"CREATE SECRET bucket (TYPE s3, {self._secret})")
            location = f"s3://{self._root}/{table.replace('.', '/')}"
            return canonical_rows(connection.execute(f"FROM delta_scan('{location}')").to_arrow_table())

    def tables(self) -> list[str]:
        """Their directories."""
        return [str(path).partition("/")[2] for path in self._files.glob(f"{self._root}/*/*")]

    def data_files(self, table: str) -> list[str]:
        """All there are, whether the table has them or not."""
        return list(self._files.glob(f"{self._root}/{table.replace('.', '/')}/**/*.parquet"))
