"""Where a DuckLake is: its catalog in a file or in Postgres, its data in a directory or an object store."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb

from ...config.duckdb import DuckLakeCatalogType, DuckLakeConfig
from ...errors import ConfigError
from .extensions import load_extension
from .places import connection_with, literal, make_directory_of

__all__ = ["Lake"]

_SCANNERS = {DuckLakeCatalogType.SQLITE: "sqlite_scanner", DuckLakeCatalogType.POSTGRES: "postgres_scanner"}
_BUSY_TIMEOUT_MS = 30_000
"""How long SQLite waits for another writer of the catalog, of another pipeline say."""
_KEPT = ".headrace-"
"""Begins the names of directories that keep files of a transaction while it is committed."""
_FILES = "ducklake-"
"""Begins the names of DuckLake's files; a UUID of version 7 follows, which begins with the time in milliseconds."""
_CLOCK_STEP_S = 60.0
_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs", "gcs": "gcs", "r2": "r2"}


class Lake:
    """In SQL it is `lake`, and so it is in the catalog's own names."""

    kind = "ducklake"
    name = "lake"

    def __init__(self, settings: DuckLakeConfig) -> None:
        self._settings = settings
        where = "Postgres" if settings.catalog.type is DuckLakeCatalogType.POSTGRES else settings.catalog.uri
        self.text = f"the lake with its catalog in {where}"
        hidden = [secret.get_secret_value() for secret in settings.secrets.values()]
        if settings.catalog.password is not None:
            hidden.append(settings.catalog.password.get_secret_value())
        # Also as they are written within statements and connection strings.
        plain = [secret for secret in hidden if secret]
        self.secrets: Sequence[str] = [*(form(secret) for secret in plain for form in (literal, _libpq)), *plain]

    def connect(self) -> duckdb.DuckDBPyConnection:
        settings = self._settings
        # The extensions are files of installed packages, like all code that runs here. To check their signatures would
        # take DuckDB a quarter of a second each.
        connection = connection_with(settings.engine, settings={"allow_unsigned_extensions": "true"})
        try:
            load_extension(connection, "ducklake")
            if settings.catalog.type in _SCANNERS:
                load_extension(connection, _SCANNERS[settings.catalog.type])
            self._reach_storage(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"ATTACH {literal(self._catalog())} AS {self.name} ({', '.join(self._options())})")

    @contextlib.contextmanager
    def keeping_files(self, connection: duckdb.DuckDBPyConnection, began_at: float) -> Iterator[None]:
        """Keep the files of a transaction that began at a time while the block commits it.

        DuckLake removes them when COMMIT fails, and it fails too when only the answer of a catalog in Postgres is lost,
        although the commit took place. What is kept in vain, maintenance removes as orphaned files.
        """
        if self._settings.catalog.type is not DuckLakeCatalogType.POSTGRES:
            yield
        elif self._is_remote():
            # Without its credentials DuckLake cannot remove anything. A commit needs none.
            self._create_secret(
                connection, {**_without_credentials(self._settings.storage), "key_id": "", "secret": ""}
            )
            try:
                yield
            finally:
                self._create_secret(connection, self._access())
        else:
            with _linked(self._local_data(), began_at):
                yield

    def _local_data(self) -> Path:
        return Path(self._settings.data_path.removeprefix("file://")).absolute()

    def _is_remote(self) -> bool:
        scheme, separator, _ = self._settings.data_path.partition("://")
        return bool(separator) and scheme != "file"

    def _catalog(self) -> str:
        catalog = self._settings.catalog
        if catalog.type is DuckLakeCatalogType.POSTGRES:
            password = "" if catalog.password is None else f" password={_libpq(catalog.password.get_secret_value())}"
            return f"ducklake:postgres:{catalog.uri}{password}"
        make_directory_of(Path(catalog.uri).absolute(), "destination.catalog.uri")
        kind = "sqlite:" if catalog.type is DuckLakeCatalogType.SQLITE else ""
        return f"ducklake:{kind}{catalog.uri}"

    def _options(self) -> list[str]:
        settings = self._settings
        data_path = settings.data_path if "://" in settings.data_path else str(Path(settings.data_path).absolute())
        options = [
            f"DATA_PATH {literal(data_path.rstrip('/') + '/')}",
            f"DATA_INLINING_ROW_LIMIT {settings.data_inlining_row_limit}",
        ]
        if settings.catalog.type is DuckLakeCatalogType.SQLITE:
            # So that readers and the writer do not keep each other out.
            options += ["META_JOURNAL_MODE 'WAL'", f"META_BUSY_TIMEOUT {_BUSY_TIMEOUT_MS}"]
        if settings.catalog.metadata_schema is not None:
            options.append(f"METADATA_SCHEMA {literal(settings.catalog.metadata_schema)}")
        return options

    def _reach_storage(self, connection: duckdb.DuckDBPyConnection) -> None:
        if not self._is_remote():
            return
        scheme = self._settings.data_path.partition("://")[0]
        if scheme not in _STORES:
            msg = f"the data path's storage {scheme} is not one that DuckLake is used with here"
            raise ConfigError(msg, hint=f"set destination.data_path to a directory, or to one of {', '.join(_STORES)}")
        load_extension(connection, "httpfs")
        self._create_secret(connection, self._access())

    def _access(self) -> dict[str, str]:
        settings = self._settings
        return {**settings.storage, **{name: secret.get_secret_value() for name, secret in settings.secrets.items()}}

    def _create_secret(self, connection: duckdb.DuckDBPyConnection, given: Mapping[str, str]) -> None:
        for name in given:
            if not name.isidentifier():
                msg = f"destination.storage has a parameter {name!r}, which is no name"
                raise ConfigError(msg)
        kind = _STORES[self._settings.data_path.partition("://")[0]]
        parameters = [f"TYPE {kind}", *(f"{name} {literal(value)}" for name, value in given.items())]
        connection.execute(f"CREATE OR REPLACE SECRET headrace_storage ({', '.join(parameters)})")


def _without_credentials(storage: Mapping[str, str]) -> dict[str, str]:
    kept = ("endpoint", "region", "url_style", "use_ssl", "account_id")
    return {name: value for name, value in storage.items() if name.lower() in kept}


@contextlib.contextmanager
def _linked(directory: Path, began_at: float) -> Iterator[None]:
    """Put files that were written since a time back under their names if the block fails and removes them."""
    since = f"{int((began_at - _CLOCK_STEP_S) * 1000):012x}"
    kept = directory / f"{_KEPT}{uuid.uuid4()}"
    links: list[tuple[Path, Path]] = []
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(_KEPT)]
        for name in names:
            if name.startswith(_FILES) and name[len(_FILES) :].replace("-", "")[:12] >= since:
                kept.mkdir(exist_ok=True)
                links.append((Path(parent, name), kept / name))
                _link(*links[-1])
    try:
        yield
    except BaseException:
        for file, link in links:
            if not file.exists():
                _link(link, file)
        raise
    finally:
        shutil.rmtree(kept, ignore_errors=True)


def _link(existing: Path, new: Path) -> None:
    try:
        os.link(existing, new)
    except OSError:
        # Not every file system has links.
        shutil.copyfile(existing, new)


def _libpq(value: str) -> str:
    """A value of a connection string."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
