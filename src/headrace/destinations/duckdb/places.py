"""Where a database is: a file, or MotherDuck. What differs between them is only how they are opened."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import duckdb

from ...config.duckdb import MOTHERDUCK, DuckDBConfig, DuckDBEngineConfig
from ...errors import ConfigError, DestinationError, DestinationRejected

__all__ = ["DatabaseFile", "MotherDuck", "connection_with", "literal", "make_directory_of"]

_TOKEN = "motherduck_token"  # noqa: S105 - the name of a setting
_NOT_OURS = ("not a valid DuckDB database file", "version number")
_REFUSED = ("Invalid Input Error", "Jwt", "token", "Unauthenticated", "UNAUTHENTICATED")


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def connection_with(
    engine: DuckDBEngineConfig, database: str = ":memory:", settings: Mapping[str, str] | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection that fetches no extension and shows times in UTC."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": engine.memory_limit,
        "autoinstall_known_extensions": "false",
        **({} if engine.threads is None else {"threads": engine.threads}),
        **(settings or {}),
    }
    connection = duckdb.connect(database, config=config)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def make_directory_of(path: Path, setting: str) -> None:
    """The directory of a file that DuckDB makes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the directory {path.parent} is not there and cannot be made"
        hint = f"check {setting}, and what this user may write"
        raise DestinationError(msg, detail=error.strerror, hint=hint) from None


class _WithoutFiles:
    """A database that writes no files beside it."""

    def keeping_files(self, connection: duckdb.DuckDBPyConnection, began_at: float) -> AbstractContextManager[None]:
        del connection, began_at
        return nullcontext()


class DatabaseFile(_WithoutFiles):
    """A file on this machine. In SQL it is `destination`, whatever the file is called."""

    kind = "duckdb"
    name = "destination"
    secrets: Sequence[str] = ()

    def __init__(self, settings: DuckDBConfig) -> None:
        self._path, self._engine = Path(settings.database), settings.engine
        self.text = f"the file {settings.database}"

    def connect(self) -> duckdb.DuckDBPyConnection:
        return connection_with(self._engine)

    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        make_directory_of(self._path, "destination.database")
        try:
            connection.execute(f"ATTACH {literal(str(self._path))} AS {self.name} (TYPE duckdb)")
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) and any(words in str(error) for words in _NOT_OURS):
                msg = f"{self.text} is no database that this version of DuckDB can open"
                hint = "set destination.database to another file; a file of a newer DuckDB needs that version"
                raise DestinationRejected(msg, detail=" ".join(str(error).split()), hint=hint) from None
            raise


class MotherDuck(_WithoutFiles):
    """A database at MotherDuck. In SQL it has the name that it has there."""

    kind = "motherduck"

    def __init__(self, settings: DuckDBConfig) -> None:
        self._engine = settings.engine
        self.name = settings.database.removeprefix(MOTHERDUCK).partition("?")[0]
        self.text = f"the database {MOTHERDUCK}{self.name}"
        token = None if settings.token is None else settings.token.get_secret_value()
        self._token = token or os.environ.get(_TOKEN) or os.environ.get(_TOKEN.upper())
        self.secrets: Sequence[str] = [self._token] if self._token else []

    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        """It was opened as the database itself."""

    def connect(self) -> duckdb.DuckDBPyConnection:
        if not self._token:
            msg = f"there is no access token for {self.text}"
            hint = "make one in MotherDuck's settings and give it as HEADRACE__DESTINATION__TOKEN, or motherduck_token"
            raise ConfigError(msg, hint=hint)
        settings = {_TOKEN: self._token, "autoinstall_known_extensions": "true"}
        try:
            return connection_with(self._engine, f"{MOTHERDUCK}{self.name}", settings)
        except duckdb.Error as error:
            detail = " ".join(str(error).replace(self._token, "…").split())
            if "motherduck" in str(error).lower() and "extension" in str(error).lower():
                msg = "DuckDB's extension for MotherDuck could not be loaded"
                hint = "let this machine reach extensions.duckdb.org once, or run INSTALL motherduck beforehand"
                raise DestinationRejected(msg, detail=detail, hint=hint) from None
            if any(word in str(error) for word in _REFUSED):
                msg = f"MotherDuck refused the access token for {self.text}"
                hint = "make a new one in MotherDuck's settings and give it as HEADRACE__DESTINATION__TOKEN"
                raise DestinationRejected(msg, detail=detail, hint=hint) from None
            raise
