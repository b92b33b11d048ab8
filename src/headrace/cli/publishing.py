"""Creates a publication for `headrace init`, and says beforehand what that would break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from ..errors import ConfigError
from ..postgres.translation import translated_errors
from ..schema import OWN_SCHEMA, TableName, quote_identifier
from .asking import find_table

__all__ = ["Publishable", "create_publication", "publishable_tables", "select", "statement"]

# What FOR ALL TABLES takes, partitions through their root; with the kind of replica identity that each has now.
_TABLES = """
SELECT c.oid::int8, n.nspname, c.relname, CASE c.relreplident
    WHEN 'f' THEN true WHEN 'n' THEN false
    WHEN 'd' THEN EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary
        AND i.indimmediate)
    ELSE EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisreplident) END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', %s) AND n.nspname !~ '^pg_'
ORDER BY 2, 3
"""


@dataclass(frozen=True, slots=True)
class Publishable:
    """A table that can be published. Without identity, publishing it makes UPDATE and DELETE on it fail."""

    id: int
    name: TableName
    has_identity: bool


def publishable_tables(connection: psycopg.Connection[Any]) -> list[Publishable]:
    """All tables of the database that a publication can have."""
    with translated_errors("cannot read the tables"):
        rows = connection.execute(_TABLES, (OWN_SCHEMA,)).fetchall()
    return [Publishable(oid, TableName(schema, name), identity) for oid, schema, name, identity in rows]


def select(tables: Sequence[Publishable], names: Sequence[str]) -> list[Publishable]:
    """Those that are named; all if none is. Raises TableNotFound, which names the nearest."""
    if not names:
        return list(tables)
    known = {table.id: table.name for table in tables}
    chosen = {find_table(name, known, "this database") for name in names}
    return [table for table in tables if table.id in chosen]


def statement(publication: str, tables: Sequence[Publishable] | None) -> str:
    """The SQL that creates a publication of these tables, or, with None, of all there are and will be."""
    what = "ALL TABLES" if tables is None else f"TABLE {', '.join(table.name.quoted for table in tables)}"
    # A partitioned table arrives as one table, and not as one per partition.
    return f"CREATE PUBLICATION {quote_identifier(publication)} FOR {what} WITH (publish_via_partition_root = true)"


def create_publication(connection: psycopg.Connection[Any], sql: str, tables: Sequence[Publishable]) -> None:
    """Run `sql`. Raises ConfigError, before anything is done, if writes to a table would fail from then on."""
    broken = [str(table.name) for table in tables if not table.has_identity]
    if broken:
        msg = f"UPDATE and DELETE on {', '.join(broken)} would fail once published: no primary key, no replica identity"
        hint = "add a primary key, or ALTER TABLE … REPLICA IDENTITY FULL, or choose the tables with --table"
        raise ConfigError(msg, hint=hint)
    with translated_errors("cannot create the publication"):
        connection.execute(sql.encode())
