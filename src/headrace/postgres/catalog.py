"""What the catalog says about tables: their `TableSchema`, any number of them in one query.

The query is `source/describe.sql`. At the source it may also be a function, whose answers come as DDL messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg

from ..errors import SourcePermissionDenied, SourceSchemaError
from ..schema import Column, PgType, ReplicaIdentity, TableName, TableSchema, quote_identifier
from .source.script import describe_query
from .translation import translated_errors

__all__ = [
    "current_name",
    "described_tables",
    "require_all_rows",
    "rows_hidden_from",
    "source_identity",
    "table_schema",
    "table_schemas",
]

_QUERY = describe_query().replace("%", "%%").replace("$1", "%(ids)s::pg_catalog.oid[]")
_SET_AND_TELL = """
SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting('jit'),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('jit', 'off', true)
"""
_RESTORE = "SELECT pg_catalog.set_config('search_path', %s, true), pg_catalog.set_config('jit', %s, true)"

_NAME = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %s
"""

# Tells what holds for the role, whatever the session's `row_security` is.
_HIDDEN = """
SELECT n.nspname, c.relname, current_user::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s) AND pg_catalog.row_security_active(c.oid) ORDER BY n.nspname, c.relname
"""

_Record = Mapping[str, Any]


def table_schemas(connection: psycopg.Connection[Any], table_ids: Iterable[int]) -> dict[int, TableSchema]:
    """The tables' schemas by OID; an OID that no longer exists is left out."""
    with translated_errors("cannot read table definitions"), _settled(connection):
        row = connection.execute(_QUERY, {"ids": list(table_ids)}).fetchone()
    assert row is not None
    return described_tables(row[0])


def current_name(connection: psycopg.Connection[Any], table_id: int) -> TableName | None:
    """What a table is called now; None: there is no such table any more."""
    with translated_errors("cannot read table definitions"):
        row = connection.execute(_NAME, (table_id,)).fetchone()
    return None if row is None else TableName(*row)


def source_identity(connection: psycopg.Connection[Any]) -> tuple[str, str]:
    """Return the cluster's system identifier and the name of the connected database."""
    query = "SELECT system_identifier::text, pg_catalog.current_database() FROM pg_catalog.pg_control_system()"
    with translated_errors("cannot read the system identifier"):
        row = connection.execute(query).fetchone()
    assert row is not None
    return str(row[0]), str(row[1])


def rows_hidden_from(connection: psycopg.Connection[Any], table_ids: Iterable[int]) -> dict[TableName, str]:
    """Find the tables whose row-level security applies to the session's role; each with the role's quoted name."""
    with translated_errors("cannot read row-level security"):
        rows = connection.execute(_HIDDEN, (list(table_ids),)).fetchall()
    return {TableName(schema, name): quote_identifier(role) for schema, name, role in rows}


def require_all_rows(connection: psycopg.Connection[Any], table: TableSchema) -> None:
    """Raise SourcePermissionDenied if row-level security would hide rows of the table or of its leaves from a copy."""
    for name, role in rows_hidden_from(connection, [table.id, *table.leaves]).items():
        msg = f"table {name} has row-level security, which applies to role {role}: a copy would miss rows"
        raise SourcePermissionDenied(msg, hint=f"ALTER ROLE {role} BYPASSRLS")


def described_tables(document: _Record) -> dict[int, TableSchema]:
    """The tables of one answer of `describe.sql`, by OID."""
    tables, columns, indexes, records = (document[part] or [] for part in ("tables", "columns", "indexes", "types"))
    types, by_table, indexes_of = _types(records), _grouped(columns), _grouped(indexes)
    return {table["oid"]: _schema(table, by_table[table["oid"]], indexes_of[table["oid"]], types) for table in tables}


@contextmanager
def _settled(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Within the block, the text of a default names functions and types by their schema, whoever asks for it.

    And nothing is compiled: the estimates are far too high for it.
    """
    with connection.transaction():
        before = connection.execute(_SET_AND_TELL).fetchone()
        assert before is not None
        yield
        # The transaction may be somebody else's, of which this is a part.
        connection.execute(_RESTORE, before[:2])


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
            record["typmod"] if record["base"] is not None else -1, record["delimiter"], tuple(members(record)),
        )  # fmt: skip

    def members(record: _Record) -> Iterator[str]:
        for member in record["members"] or []:
            if isinstance(member, str):
                yield member
                continue
            yield f"{member['name']} {member['type']} {member['typmod']}"
            # What its own type is made of is printed inside it.
            yield from (f"{member['name']}.{inner}" for inner in _innermost(build(member["type"])).members)

    return {oid: built for oid in by_oid if (built := build(oid)) is not None}


def _innermost(pg_type: PgType | None) -> PgType:
    """What an array or a domain is made of in the end."""
    assert pg_type is not None
    inner = pg_type.element or pg_type.base
    return pg_type if inner is None else _innermost(inner)


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
                positions.get(c["attnum"]), c["generated"], c["comment"], c["missing"],
            )
            for c in columns
        ),
        identity,
        _identity_attnums(identity, columns, indexes),
        table["comment"],
        tuple(table["leaves"] or ()),
        table.get("natts", 0),
        table.get("storage", 0),
    )  # fmt: skip


def _identity_attnums(identity: ReplicaIdentity, columns: list[_Record], indexes: list[_Record]) -> tuple[int, ...]:
    if identity is ReplicaIdentity.FULL:
        return tuple(column["attnum"] for column in columns)
    # A deferrable key identifies nothing: two rows may share it until commit, so Postgres does not use it.
    usable = [index for index in indexes if index["immediate"]]
    wanted = {ReplicaIdentity.DEFAULT: "primary", ReplicaIdentity.INDEX: "identity"}.get(identity)
    return tuple(sorted(next((index["attnums"] for index in usable if wanted and index[wanted]), [])))
