"""The proof that the lakehouse equals the source: whole tables compared by DuckDB, each side read by others' code.

The source is read by COPY as CSV, which Arrow's own reader parses into the types that the lakehouse has; the lakehouse
by what `lakehouses` names. Nothing of Headrace decodes a value here.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from psycopg import sql
from pyarrow import csv

if TYPE_CHECKING:
    import duckdb

__all__ = ["Lakehouse", "TableProof", "prove_table"]

Lakehouse = Callable[[str], pa.Table]
"""Reads a table, by its name as schema.table."""

_SHOWN_KEYS = 5


@dataclass(frozen=True, slots=True)
class TableProof:
    """What comparing one table gave. Rows that differ are in both numbers."""

    table: str
    source_rows: int
    lakehouse_rows: int
    only_in_source: int = 0
    only_in_lakehouse: int = 0
    keys: tuple[str, ...] = ()
    """Of the first rows that differ."""
    columns: str = ""
    """How the columns differ, if they do; then no row was compared."""

    @property
    def equal(self) -> bool:
        return not (self.only_in_source or self.only_in_lakehouse or self.columns)


@dataclass(frozen=True, slots=True)
class _Columns:
    names: tuple[str, ...]
    arrays: frozenset[str]
    key: tuple[str, ...]


def prove_table(connection: psycopg.Connection[Any], lakehouse: Lakehouse, table: str) -> TableProof:
    """Compare all rows of a table, named as schema.table, that nobody writes to meanwhile."""
    columns = _columns(connection, table)
    found = lakehouse(table)
    missing = [name for name in columns.names if name not in found.column_names]
    extra = [name for name in found.column_names if name not in columns.names]
    if missing or extra:
        said = [f"{what} {', '.join(names)}" for what, names in (("missing", missing), ("extra", extra)) if names]
        return TableProof(table, _count(connection, table), len(found), columns="; ".join(said))
    return _compare(table, _source(connection, table, columns, found.schema), found, columns)


def _columns(connection: psycopg.Connection[Any], table: str) -> _Columns:
    query = (
        "SELECT attname, atttypid::regtype::text LIKE '%%[]', attnum = ANY (coalesce(conkey, '{}')) "
        "FROM pg_attribute LEFT JOIN pg_constraint ON conrelid = attrelid AND contype = 'p' "
        "WHERE attrelid = format('%%I.%%I', %s::text, %s::text)::regclass AND attnum > 0 AND NOT attisdropped "
        "ORDER BY attnum"
    )
    rows = connection.execute(query, table.split(".", 1)).fetchall()
    names = tuple(name for name, _, _ in rows)
    key = tuple(name for name, _, in_key in rows if in_key)
    return _Columns(names, frozenset(name for name, is_array, _ in rows if is_array), key or names)


def _identifier(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split(".", 1))


def _count(connection: psycopg.Connection[Any], table: str) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(_identifier(table))).fetchone()
    assert row is not None
    return int(row[0])


def _source(connection: psycopg.Connection[Any], table: str, columns: _Columns, schema: pa.Schema) -> pa.Table:
    """The source's rows, in the lakehouse's types; arrays as JSON."""
    fields = [
        sql.SQL("array_to_json({})::text").format(sql.Identifier(name))
        if name in columns.arrays
        else sql.Identifier(name)
        for name in columns.names
    ]
    query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)").format(
        sql.SQL(", ").join(fields), _identifier(table)
    )
    text = io.BytesIO()
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for part in copy:
            text.write(part)
    types = {name: pa.string() if name in columns.arrays else schema.field(name).type for name in columns.names}
    if not text.tell():
        return pa.schema(types).empty_table()
    return csv.read_csv(
        pa.py_buffer(text.getvalue()),
        read_options=csv.ReadOptions(column_names=columns.names),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types,
            true_values=["t"],
            false_values=["f"],
            # COPY writes NULL as nothing, and an empty text as "".
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _compare(table: str, source: pa.Table, found: pa.Table, columns: _Columns) -> TableProof:
    import duckdb  # noqa: PLC0415 - an extra of the package

    with duckdb.connect() as engine:
        engine.register("source", source)
        engine.register("found", found)
        lists = [
            f"CAST(CASE WHEN {_quoted(name)} IS NOT NULL THEN to_json({_quoted(name)}) END AS VARCHAR)"
            if name in columns.arrays
            else _quoted(name)
            for name in columns.names
        ]
        wanted = f"SELECT {', '.join(map(_quoted, columns.names))} FROM source"
        got = f"SELECT {', '.join(lists)} FROM found"
        engine.execute(f"CREATE TABLE missing AS {wanted} EXCEPT ALL {got}")
        engine.execute(f"CREATE TABLE extra AS {got} EXCEPT ALL {wanted}")
        only_in_source, only_in_lakehouse = (_rows(engine, name) for name in ("missing", "extra"))
        keys = _first_keys(engine, columns.key) if only_in_source or only_in_lakehouse else ()
    return TableProof(table, len(source), len(found), only_in_source, only_in_lakehouse, keys)


def _rows(engine: duckdb.DuckDBPyConnection, table: str) -> int:
    row = engine.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def _first_keys(engine: duckdb.DuckDBPyConnection, key: Sequence[str]) -> tuple[str, ...]:
    # As text, made by DuckDB: it would want a time zone library to hand over a timestamptz.
    names = ", ".join(map(_quoted, key))
    texts = " || ', ' || ".join(f"CAST({_quoted(name)} AS VARCHAR)" for name in key)
    both = f"SELECT {names} FROM missing UNION SELECT {names} FROM extra"
    rows = engine.execute(f"SELECT {texts} FROM ({both}) ORDER BY {names} LIMIT {_SHOWN_KEYS}").fetchall()
    return tuple(f"({', '.join(key)}) = ({row[0]})" for row in rows)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
