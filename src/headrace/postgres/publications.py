"""What a publication sends: its tables, and of each the columns, the row filter and the kinds of change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from ..errors import PublicationNotFound
from ..schema import OWN_SCHEMA, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema, quote_identifier
from .catalog import table_schemas
from .translation import translated_errors
from .version import ServerVersion

__all__ = [
    "Publication",
    "PublishedTable",
    "publication_exists",
    "publication_outline",
    "published_tables",
    "read_publication",
]

_SCHEMAS = """ARRAY(
    SELECT n.nspname::text FROM pg_catalog.pg_publication_namespace pn
    JOIN pg_catalog.pg_namespace n ON n.oid = pn.pnnspid WHERE pn.pnpubid = p.oid ORDER BY 1)"""

_TABLES = """
SELECT c.oid::int8, {attnames}, {listed}, {rowfilter},
    ARRAY(
        SELECT p.oid::int8 UNION ALL SELECT p.xmin::text::int8
        UNION ALL SELECT pr.oid::int8 FROM pg_catalog.pg_publication_rel pr
            WHERE pr.prpubid = p.oid AND pr.prrelid = c.oid
        UNION ALL SELECT pr.oid::int8
            FROM pg_catalog.pg_partition_ancestors(CASE WHEN c.relispartition THEN c.oid END) a
            JOIN pg_catalog.pg_publication_rel pr ON pr.prrelid = a.relid
            WHERE pr.prpubid = p.oid AND a.relid <> c.oid
        UNION ALL SELECT i.xmin::text::int8
            FROM pg_catalog.pg_partition_ancestors(CASE WHEN c.relispartition AND NOT p.puballtables THEN c.oid END) a
            JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.relid
        {schema_entries}
        ORDER BY 1),
    CASE WHEN c.relkind = 'p' THEN ARRAY(
        SELECT ARRAY[t.relid::oid::int8, COALESCE(pg_catalog.pg_relation_filenode(t.relid), t.relid::oid)::int8 + (
            SELECT COALESCE(pg_catalog.sum(i.xmin::text::int8)::int8 %% 2147483648 << 32, 0)
            FROM pg_catalog.pg_partition_ancestors(t.relid) a JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.relid)]
        FROM pg_catalog.pg_partition_tree(c.oid) t WHERE t.isleaf AND t.level > 0 ORDER BY t.relid::oid) END,
    ARRAY(SELECT a.attnum::int4 FROM pg_catalog.pg_attribute a
          WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1),
    (SELECT i.indkey::int2[]::int4[] FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
    n.nspname, c.relname
{published} ORDER BY n.nspname, c.relname
"""

# The view resolves FOR ALL TABLES, IN SCHEMA, and partitions: leaves, or the root under publish_via_partition_root.
_ALL = """FROM pg_catalog.pg_publication_tables pt
JOIN pg_catalog.pg_publication p ON p.pubname = pt.pubname
JOIN pg_catalog.pg_namespace n ON n.nspname = pt.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = pt.tablename
WHERE p.pubname = %(name)s AND n.nspname <> %(own)s"""

# The view opens every table of the publication. Whoever holds a lock on one must not wait for another, or a command
# that alters both is caught in a deadlock with us. So for a single table it is done by hand.
_ONE = """FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_class c ON c.oid = %(table)s
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
WHERE p.pubname = %(name)s AND n.nspname <> %(own)s AND (p.puballtables OR EXISTS (
    SELECT 1 FROM (SELECT c.oid UNION SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(c.oid) a) AS t(oid)
    WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_publication_rel pr WHERE pr.prpubid = p.oid AND pr.prrelid = t.oid)
    {in_schema}))"""

_IN_SCHEMA = """OR EXISTS (SELECT 1 FROM pg_catalog.pg_publication_namespace pn
        JOIN pg_catalog.pg_class k ON k.relnamespace = pn.pnnspid WHERE pn.pnpubid = p.oid AND k.oid = t.oid)"""

_ATTNAMES = """ARRAY(
    SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND CASE
        WHEN r.prattrs IS NULL THEN a.attgenerated = '' {or_generated} ELSE a.attnum = ANY(r.prattrs) END
    ORDER BY a.attnum)"""

_LISTED = """EXISTS (
    SELECT 1 FROM pg_catalog.pg_publication_rel pr
    WHERE pr.prpubid = p.oid AND pr.prrelid = c.oid AND pr.prattrs IS NOT NULL)"""

_SCHEMA_ENTRIES = """UNION ALL SELECT pn.oid::int8 FROM pg_catalog.pg_publication_namespace pn
            WHERE pn.pnpubid = p.oid AND pn.pnnspid = c.relnamespace"""


@dataclass(frozen=True, slots=True)
class Publication:
    """A row of pg_publication. `schemas` are those published as a whole (IN SCHEMA), our own left out."""

    name: str
    all_tables: bool
    schemas: tuple[str, ...]
    via_partition_root: bool
    actions: frozenset[str]
    """Of insert, update, delete and truncate, those that are sent."""
    generated_columns: bool
    """Stored generated columns are sent (Postgres 18, `publish_generated_columns = stored`)."""


def publication_exists(connection: psycopg.Connection[Any], name: str) -> bool:
    with translated_errors("cannot read publications"):
        row = connection.execute("SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s", (name,)).fetchone()
    return row is not None


def read_publication(connection: psycopg.Connection[Any], name: str) -> Publication:
    """The publication's own settings. Raises PublicationNotFound."""
    schemas = _SCHEMAS if ServerVersion.of(connection).tables_in_schema else "ARRAY[]::text[]"
    query = f"""SELECT pg_catalog.to_jsonb(p) AS settings, {schemas} AS schemas
        FROM pg_catalog.pg_publication p WHERE pubname = %s"""
    with translated_errors("cannot read publications"), connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query, (name,)).fetchone()
    if row is None:
        msg = f"publication {quote_identifier(name)} does not exist in this database"
        raise PublicationNotFound(msg, hint=f"create it: CREATE PUBLICATION {quote_identifier(name)} FOR TABLE …")
    settings = row["settings"]
    return Publication(
        name,
        settings["puballtables"],
        tuple(schema for schema in row["schemas"] if schema != OWN_SCHEMA),
        settings["pubviaroot"],
        frozenset(kind for kind in ("insert", "update", "delete", "truncate") if settings[f"pub{kind}"]),
        settings.get("pubgencols") == "s",
    )


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """What the publication says of one table, by OID. Cheap to read, to see whether anything changed."""

    id: int
    attnames: tuple[str, ...] | None
    """The columns sent; None before Postgres 15, which sends all."""
    listed: bool
    """They are named one by one."""
    row_filter: str | None
    entries: tuple[int, ...]
    leaf_files: tuple[tuple[int, int], ...]
    attnums: tuple[int, ...]
    """Of all its columns: a column that is dropped and added again with the same name has another."""
    key: tuple[int, ...]
    """The primary key's, as the index has them."""
    name: TableName


def publication_outline(
    connection: psycopg.Connection[Any], name: str, table_id: int | None = None
) -> tuple[PublishedTable, ...]:
    """The publication's tables, by name, or only one of them. Raises PublicationNotFound; may be empty.

    What lies in our own schema is left out: a store there writes after every batch, and would be fed its own writes.
    """
    query = _query(ServerVersion.of(connection), one=table_id is not None)
    with translated_errors("cannot read the publication's tables"):
        rows = connection.execute(query, {"name": name, "own": OWN_SCHEMA, "table": table_id}).fetchall()
    if not rows:
        read_publication(connection, name)
    return tuple(
        PublishedTable(
            oid, None if attnames is None else tuple(attnames), listed, row_filter, tuple(entries),
            tuple((leaf, number) for leaf, number in leaf_files or ()), tuple(attnums), tuple(key or ()),
            TableName(namespace, table),
        )
        for oid, attnames, listed, row_filter, entries, leaf_files, attnums, key, namespace, table in rows
    )  # fmt: skip


def _query(version: ServerVersion, *, one: bool) -> str:
    attnames, row_filter, published = "pt.attnames::text[]", "pt.rowfilter", _ALL
    if one:
        generated = "OR (a.attgenerated = 's' AND p.pubgencols = 's')" if version.publish_generated_columns else ""
        attnames, row_filter = _ATTNAMES.format(or_generated=generated), "pg_catalog.pg_get_expr(r.prqual, r.prrelid)"
        published = _ONE.format(in_schema=_IN_SCHEMA if version.tables_in_schema else "")
    return _TABLES.format(
        attnames=attnames if version.column_lists else "NULL::text[]",
        listed=_LISTED if version.column_lists else "false",
        rowfilter=row_filter if version.row_filters else "NULL::text",
        schema_entries=_SCHEMA_ENTRIES if version.tables_in_schema else "",
        published=published,
    )


def published_tables(
    connection: psycopg.Connection[Any], name: str, table_id: int | None = None
) -> tuple[ReplicatedTableSchema, ...]:
    """The tables as the publication shows them, with their columns, by name; as `publication_outline`."""
    version = ServerVersion.of(connection)
    outline = publication_outline(connection, name, table_id)
    schemas = table_schemas(connection, [table.id for table in outline])
    # A table dropped between the two queries is no longer published.
    return tuple(
        ReplicatedTableSchema(
            schemas[table.id], _mask(schemas[table.id], table.attnames, version), table.row_filter, table.entries,
            table.leaf_files, table.listed,
        )
        for table in outline
        if table.id in schemas
    )  # fmt: skip


def _mask(schema: TableSchema, attnames: tuple[str, ...] | None, version: ServerVersion) -> ReplicationMask:
    listed = None if attnames is None else frozenset(attnames)
    return ReplicationMask(
        frozenset(
            column.attnum
            for column in schema.columns
            # Some minor versions list generated columns that they do not send.
            if (version.publish_generated_columns or not column.generated) and (listed is None or column.name in listed)
        )
    )
