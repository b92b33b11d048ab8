"""Checks of the publication: it is there, it has tables, and which tables it leaves out without saying so."""

from __future__ import annotations

from typing import Any

import psycopg

from ...errors import PublicationNotFound
from ...schema import TableName, quote_identifier
from ..publications import published_tables, read_publication
from .contract import Finding, Severity, Target, named

__all__ = ["publication_exists", "publication_tables", "unpublishable_tables"]

_LEFT_OUT = """
SELECT n.nspname, c.relname, CASE WHEN c.relkind = 'f' THEN 'foreign'
    WHEN c.relpersistence = 't' THEN 'temporary' ELSE 'unlogged' END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (c.relkind = 'f' OR (c.relkind IN ('r', 'p') AND c.relpersistence <> 'p'))
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_(?!temp_)' AND (%(all)s OR n.nspname = ANY(%(schemas)s))
ORDER BY 1, 2
"""

_WHY = {
    "unlogged": "its changes never reach the WAL",
    "temporary": "its changes never reach the WAL",
    "foreign": "its rows live on another server",
}


@named("publication")
def publication_exists(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    try:
        read_publication(connection, target.publication)
    except PublicationNotFound as error:
        name = quote_identifier(target.publication)
        remedy = f"CREATE PUBLICATION {name} FOR TABLE … (or FOR ALL TABLES), in this database"
        return [Finding("publication", Severity.ERROR, error.message, remedy)]
    return []


@named("published tables")
def publication_tables(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    if published_tables(connection, target.publication):
        return []
    name = quote_identifier(target.publication)
    return [
        Finding(
            "published tables",
            Severity.ERROR,
            f"publication {name} has no tables",
            f"ALTER PUBLICATION {name} ADD TABLE …",
        )
    ]


@named("tables left out")
def unpublishable_tables(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    """FOR ALL TABLES and IN SCHEMA silently skip what has no WAL; named one by one, Postgres refuses them itself."""
    publication = read_publication(connection, target.publication)
    parameters = {"all": publication.all_tables, "schemas": list(publication.schemas)}
    return [
        Finding(
            "tables left out",
            Severity.WARNING if kind == "unlogged" else Severity.INFO,
            f"{kind} table {schema}.{name} is not replicated: {_WHY[kind]}",
            f"ALTER TABLE {TableName(schema, name).quoted} SET LOGGED" if kind == "unlogged" else "",
        )
        for schema, name, kind in connection.execute(_LEFT_OUT, parameters).fetchall()
    ]
