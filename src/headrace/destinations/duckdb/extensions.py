"""DuckDB's extensions, from installed packages: nothing is fetched when a destination opens."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import duckdb

from ...errors import ConfigError

__all__ = ["load_extension"]


def load_extension(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Raises ConfigError if its package is not installed, or is for another version of DuckDB."""
    hint = "install it: pip install 'headrace[ducklake]'"
    try:
        (package,) = import_module(f"duckdb_extension_{name}").__path__
    except ModuleNotFoundError:
        msg = f"DuckDB's extension {name} is not installed"
        raise ConfigError(msg, hint=hint) from None
    file = Path(package) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not file.exists():
        msg = f"DuckDB's extension {name} is installed for another version than DuckDB {duckdb.__version__}"
        raise ConfigError(msg, hint=hint)
    path = str(file).replace("'", "''")
    connection.execute(f"LOAD '{path}'")
