"""What the catalog says about tables: their `TableSchema`, any number of them in one round trip."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg

from ..errors import SourceSchemaError
from ..schema import Column, PgType, ReplicaIdentity, TableName, TableSchema
from .translation import translated_errors

__all__ = ["table_schema", "table_schemas"]

# An array type is one that its element type names as its array; `typelem` alone is also set for point, name and
# oidvector, whose text is not an array's. Types are followed from the columns to their elements and domain bases.
_QUERY = """
WITH RECURSIVE tables AS (
    SELECT c.oid, c.relname, n.nspname, c.relreplident, pg_catalog.obj_description(c.oid, 'pg_class') AS comment
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY(%(ids)s)
), columns AS (
    SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated,
           CASE WHEN a.attgenerated = '' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END AS default_text,
           pg_catalog.col_description(a.attrelid, a.attnum) AS comment
    FROM tables t
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
), followed AS (
    SELECT y.oid, CASE WHEN y.typtype = 'd' THEN y.typbasetype ELSE e.oid END AS next
    FROM pg_catalog.pg_type y LEFT JOIN pg_catalog.pg_type e ON e.oid = y.typelem AND e.typarray = y.oid
), reached(oid) AS (
    SELECT atttypid FROM columns
    UNION
    SELECT f.next FROM reached r JOIN followed f ON f.oid = r.oid WHERE f.next IS NOT NULL
), indexes AS (
    -- Key columns only: INCLUDE columns stand behind them in indkey.
    SELECT i.indrelid, i.indisprimary, i.indisreplident, i.indimmediate,
           (i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1] AS attnums
    FROM pg_catalog.pg_index i JOIN tables t ON t.oid = i.indrelid
    WHERE i.indisvalid AND (i.indisprimary OR i.indisreplident)
)
SELECT
    (SELECT json_agg(json_build_object('oid', t.oid::int8, 'name', t.relname, 'schema', t.nspname, 'identity', t.relreplident,
                'comment', t.comment))
     FROM tables t),
    (SELECT json_agg(json_build_object('table', attrelid::int8, 'attnum', attnum, 'name', attname, 'type', atttypid::int8,
                'typmod', atttypmod, 'nullable', NOT attnotnull, 'default', default_text, 'generated', attgenerated <> '',
                'comment', comment)
            ORDER BY attnum)
     FROM columns),
    (SELECT json_agg(json_build_object('table', indrelid::int8, 'primary', indisprimary, 'identity', indisreplident,
                'immediate', indimmediate, 'attnums', attnums))
     FROM indexes),
    (SELECT json_agg(json_build_object('oid', y.oid::int8, 'name', y.typname, 'schema', n.nspname, 'kind', y.typtype,
                'delimiter', y.typdelim, 'base', CASE WHEN y.typtype = 'd' THEN f.next::int8 END,
                'element', CASE WHEN y.typtype <> 'd' THEN f.next::int8 END, 'typmod', y.typtypmod))
     FROM reached r JOIN pg_catalog.pg_type y ON y.oid = r.oid JOIN followed f ON f.oid = y.oid
     JOIN pg_catalog.pg_namespace n ON n.oid = y.typnamespace)
"""  # noqa: E501

_Record = Mapping[str, Any]


def table_schemas(connection: psycopg.Connection[Any], table_ids: Iterable[int]) -> dict[int, TableSchema]:
    """The tables' schemas by OID; an OID that no longer exists is left out."""
    with translated_errors("cannot read table definitions"):
        row = connection.execute(_QUERY, {"ids": list(table_ids)}).fetchone()
    assert row is not None
    tables, columns, indexes, records = (part or [] for part in row)
    types, by_table, indexes_of = _types(records), _grouped(columns), _grouped(indexes)
    return {table["oid"]: _schema(table, by_table[table["oid"]], indexes_of[table["oid"]], types) for table in tables}


def _grouped(records: Iterable[_Record]) -> dict[int, list[_Record]]:
    groups: dict[int, list[_Record]] = defaultdict(list)
    for record in records:
        groups[record["table"]].append(record)
    return groups


def table_schema(connection: psycopg.Connection[Any], name: TableName) -> TableSchema:
    """The schema of one table by name. Raises SourceSchemaError if there is none."""
    with translated_errors("cannot read table definitions"):
        row = connection.execute("SELECT pg_catalog.to_regclass(%s)::oid", (name.quoted,)).fetchone()
    found = table_schemas(connection, [row[0]]) if row and row[0] is not None else {}
    if not found:
        msg = f"table {name} does not exist"
        raise SourceSchemaError(msg)
    return next(iter(found.values()))


def _types(records: Iterable[_Record]) -> dict[int, PgType]:
    by_oid = {record["oid"]: record for record in records}

    def build(oid: int | None) -> PgType | None:
        if oid is None:
            return None
        record = by_oid[oid]
        return PgType(
            oid, record["name"], record["schema"], record["kind"], build(record["element"]), build(record["base"]),
            record["typmod"] if record["base"] is not None else -1, record["delimiter"],
        )  # fmt: skip

    return {oid: built for oid in by_oid if (built := build(oid)) is not None}


def _schema(table: _Record, columns: list[_Record], indexes: list[_Record], types: Mapping[int, PgType]) -> TableSchema:
    key: list[int] = next((index["attnums"] for index in indexes if index["primary"]), [])
    positions = {attnum: position for position, attnum in enumerate(key, start=1)}
    identity = ReplicaIdentity(table["identity"])
    return TableSchema(
        table["oid"],
        TableName(table["schema"], table["name"]),
        tuple(
            Column(
                c["name"], c["attnum"], types[c["type"]], c["typmod"], c["nullable"], c["default"],
                positions.get(c["attnum"]), c["generated"], c["comment"],
            )
            for c in columns
        ),
        identity,
        _identity_attnums(identity, columns, indexes),
        table["comment"],
    )  # fmt: skip


def _identity_attnums(identity: ReplicaIdentity, columns: list[_Record], indexes: list[_Record]) -> tuple[int, ...]:
    if identity is ReplicaIdentity.FULL:
        return tuple(column["attnum"] for column in columns)
    # A deferrable key identifies nothing: two rows may share it until commit, so Postgres does not use it.
    usable = [index for index in indexes if index["immediate"]]
    wanted = {ReplicaIdentity.DEFAULT: "primary", ReplicaIdentity.INDEX: "identity"}.get(identity)
    return tuple(sorted(next((index["attnums"] for index in usable if wanted and index[wanted]), [])))
