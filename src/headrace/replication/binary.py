"""Whether a publication's values can be read in binary form. The server sends all of them that way, or none."""

from __future__ import annotations

from typing import Any

import psycopg

from ..errors import ConfigError
from ..pgtypes.registry import supports_binary
from ..postgres.publications import published_tables

__all__ = ["require_binary"]


def require_binary(connection: psycopg.Connection[Any], publication: str) -> None:
    """Raise ConfigError naming the columns whose binary form only the server can read."""
    unreadable = [
        f"{schema.table.name}.{column.name} ({column.type.name})"
        for schema in published_tables(connection, publication)
        for column in schema.columns
        if not supports_binary(column.type)
    ]
    if unreadable:
        raise ConfigError(
            "binary is set, but some columns can only be read as text",
            detail=", ".join(unreadable),
            hint="set binary to false, or leave these columns out of the publication with a column list",
        )
