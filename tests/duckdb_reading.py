"""DuckDB databases and lakes read back without Headrace: by connections of their own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headrace.config.duckdb import MOTHERDUCK, DuckDBConfig, DuckLakeConfig
from headrace.destinations.duckdb.database import Database
from headrace.errors import DestinationError
from headrace.schema import quote_identifier
from headrace.testing.canonical import canonical_column
from headrace.testing.destination_suite import Moment

__all__ = [
    "DuckDBFile",
    "LakeReader",
    "canonical_rows",
    "duckdb_settings",
    "duckdb_with_lake",
    "interrupted_commit",
    "lake_settings",
    "motherduck_in",
    "read_attached",
    "read_released",
]


def duckdb_settings(path: Path, **settings: Any) -> DuckDBConfig:
    return DuckDBConfig.model_validate({"database": str(path), "engine": {"memory_limit": "500MB"}, **settings})


def canonical_rows(table: pa.Table) -> list[dict[str, Any]]:
    columns = [canonical_column(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def read_attached(connection: duckdb.DuckDBPyConnection, database: str, name: Sequence[str]) -> pa.Table:
    connection.execute("SET TimeZone = 'UTC'")
    return connection.execute(f"FROM {'.'.join(map(quote_identifier, (database, *name)))}").to_arrow_table()


def read_released(path: Path, name: Sequence[str]) -> pa.Table:
    """From a file that another process closes between its batches; raises while it has it open."""
    with duckdb.connect(str(path), read_only=True) as connection:
        return read_attached(connection, path.stem, name)


class DuckDBFile:
    """All tables of a file, as the comparing functions of `pipelining` want a destination.

    A file that is open to write cannot be opened a second time, so a copy is read: what a crash would leave.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def table(self, name: Sequence[str]) -> pa.Table:
        with tempfile.TemporaryDirectory() as directory:
            for file in (self._path, Path(f"{self._path}.wal")):
                if file.exists():
                    shutil.copy(file, directory)
            with duckdb.connect() as connection:
                connection.execute(f"ATTACH '{directory}/{self._path.name}' AS read_back")
                return read_attached(connection, "read_back", name)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return canonical_rows(self.table(table.split(".", 1)))


def motherduck_in(root: Path, token: str, patch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Have databases at MotherDuck be files in a directory, for those who know the token. Returns what is asked for."""
    connect, told = duckdb.connect, list[dict[str, Any]]()

    def local(database: str = ":memory:", **given: Any) -> duckdb.DuckDBPyConnection:
        if not database.startswith(MOTHERDUCK):
            return connect(database, **given)
        config = dict(given["config"])
        told.append({"database": database, "token": config.pop("motherduck_token", None)})
        if told[-1]["token"] != token:
            msg = f"Invalid Input Error: Jwt {told[-1]['token']} is not valid"
            raise duckdb.InvalidInputException(msg)
        return connect(str(root / f"{database.removeprefix(MOTHERDUCK)}.duckdb"), config=config)

    patch.setattr(duckdb, "connect", local)
    return told


@contextmanager
def interrupted_commit(moment: Moment) -> Iterator[None]:
    """Within it the next commit fails, before or after it took effect."""
    commit, left = Database.commit, [moment]

    def fail(connection: duckdb.DuckDBPyConnection) -> None:
        if not left:
            commit(connection)
            return
        if left.pop() is Moment.AFTER_COMMIT:
            commit(connection)
        msg = "the connection was lost"
        raise DestinationError(msg)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "commit", staticmethod(fail))
        yield


@lru_cache(1)
def duckdb_with_lake() -> duckdb.DuckDBPyConnection:
    """A connection that knows DuckLake, with catalogs in all databases, and S3."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "allow_unsigned_extensions": "true"})
    for name in ("ducklake", "sqlite_scanner", "postgres_scanner", "httpfs"):
        (package,) = import_module(f"duckdb_extension_{name}").__path__
        connection.execute(f"LOAD '{next(Path(package).rglob('*.duckdb_extension'))}'")
    return connection


class LakeReader:
    """All tables of a lake, read by a connection of its own."""

    def __init__(self, catalog: str, options: str = "") -> None:
        """`catalog` is what DuckDB attaches, such as `sqlite:/tmp/lake.sqlite`."""
        self._catalog, self._options = catalog, options

    def table(self, name: Sequence[str]) -> pa.Table:
        connection = duckdb_with_lake()
        connection.execute(f"ATTACH 'ducklake:{self._catalog}' AS read_back (READ_ONLY{self._options})")
        try:
            return read_attached(connection, "read_back", name)
        finally:
            connection.execute("DETACH read_back")

    def rows(self, table: str) -> list[dict[str, Any]]:
        return canonical_rows(self.table(table.split(".", 1)))


def lake_settings(root: Path, **settings: Any) -> DuckLakeConfig:
    """A lake on disk, with its catalog in SQLite; nothing happens to it by itself unless the test asks for it."""
    given: dict[str, Any] = {
        "catalog": {"uri": str(root / "lake.sqlite")},
        "data_path": str(root / "data"),
        "maintenance": {"enabled": False},
        # One thread: the lakes of tests are small, and other threads would only wait for work.
        "engine": {"memory_limit": "500MB", "threads": 1},
        **settings,
    }
    return DuckLakeConfig.model_validate(given)
