"""The source of a random walk as Postgres describes it: its tables, columns, types; values to put into them, and what
destinations make of the types."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from headrace.schema import TableName, quote_identifier

__all__ = [
    "ARROW_TYPES", "NAMES", "SCHEMAS", "TYPES", "WIDER", "WalkColumn", "WalkTable", "attributes", "checks",
    "domain_is_required", "labels", "look", "value",
]  # fmt: skip

Connection = psycopg.Connection[Any]

PARTS = 4
"""Into how many a partitioned table is divided."""
SCHEMAS = ("public", 'Zweites "Schema"')
NAMES = (
    "select", "ORDER", "order", "Grüße, Welt", 'a "quoted" name', "MixedCase", "列", "user", "it's", "with.dot",
    "100% sure", "🚀", "plain", "table", " leading space", "ünïcode", "null", "_x", "x" * 63, "{braces}",
)  # fmt: skip

TYPES: Mapping[str, Callable[[int], str]] = {
    "smallint": lambda k: str(k % 30_000),
    "integer": lambda k: str(k * 7),
    "bigint": lambda k: str(k * 5_000_000_000),
    "text": lambda k: f"'t{k} ü''\"'" if k % 3 else f"repeat(md5('{k}'), 80)",
    "character varying(20)": lambda k: f"'v{k}'",
    "character varying(60)": lambda k: f"'w{k} —'",
    "numeric(10,2)": lambda k: f"{k}.25",
    "numeric(20,2)": lambda k: f"{k}000000.75",
    # Halves are the same in every precision.
    "real": lambda k: f"{k}.5",
    "double precision": lambda k: f"{k}.125",
    "boolean": lambda k: "true" if k % 2 else "false",
    "date": lambda k: f"date '2020-01-01' + {k % 3000}",
    "timestamp with time zone": lambda k: f"timestamptz '2021-01-01 00:00Z' + interval '{k} min'",
    "integer[]": lambda k: f"'{{{k},NULL,3}}'",
    "bytea": lambda k: f"'\\x{k:08x}'",
    # A domain over integer.
    "score": lambda k: str(k * 3),
}
ARROW_TYPES: Mapping[str, pa.DataType] = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "text": pa.string(),
    "character varying(20)": pa.string(),
    "character varying(60)": pa.string(),
    "numeric(10,2)": pa.decimal128(10, 2),
    "numeric(20,2)": pa.decimal128(20, 2),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    "integer[]": pa.list_(pa.int32()),
    "bytea": pa.binary(),
    "score": pa.int32(),
    "mood": pa.string(),
    "pair": pa.string(),
}
"""What readers of a destination find, as the documentation of types has it."""
WIDER: Mapping[str, Sequence[str]] = {
    "smallint": ("integer", "bigint"),
    "integer": ("bigint",),
    "character varying(20)": ("character varying(60)", "text"),
    "character varying(60)": ("text",),
    "numeric(10,2)": ("numeric(20,2)",),
    "real": ("double precision",),
}

_LOOK = """
SELECT n.nspname, c.relname, c.relkind::text, c.relispartition, c.relreplident::text, p.conname, (
    SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
    WHERE x.indrelid = c.oid AND x.indisreplident), pt.tablename IS NOT NULL, {row_filter}, coalesce((
    SELECT json_agg(json_build_object(
        'name', attname, 'type', format_type(atttypid, atttypmod), 'required', attnotnull,
        'default', atthasdef OR attidentity <> '',
        'generated', attgenerated <> '', 'identity', attidentity, 'key', coalesce(attnum = ANY (p.conkey), false),
        'sent', {sent}, 'identifies', EXISTS (SELECT 1 FROM pg_index x
            WHERE x.indrelid = c.oid AND x.indisreplident AND attnum = ANY (x.indkey)),
        'refers', EXISTS (SELECT 1 FROM pg_constraint f
            WHERE f.conrelid = c.oid AND f.contype = 'f' AND attnum = ANY (f.conkey))) ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), '[]')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_constraint p ON p.conrelid = c.oid AND p.contype = 'p'
LEFT JOIN pg_publication_tables pt ON pt.pubname = 'pub' AND pt.schemaname = n.nspname AND pt.tablename = c.relname
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^(pg_|information_schema$|headrace$)'
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
"""


@dataclass(frozen=True, slots=True)
class WalkColumn:
    name: str
    type: str
    required: bool
    default: bool
    generated: bool
    identity: str
    """As in `pg_attribute.attidentity`: a for ALWAYS, d for BY DEFAULT, or empty."""
    key: bool
    sent: bool
    """Whether the publication shows it."""
    identifies: bool
    """Whether it is of the index that is the replica identity."""
    refers: bool
    """Whether it is of a foreign key: then NULL is all that is put into it."""

    @property
    def quoted(self) -> str:
        return quote_identifier(self.name)


@dataclass(frozen=True, slots=True)
class WalkTable:
    name: TableName
    kind: str
    """As in `pg_class.relkind`: r, or p for a partitioned one."""
    partition: bool
    identity: str
    key_name: str | None
    identity_index: str | None
    published: bool
    row_filter: str | None
    columns: tuple[WalkColumn, ...]

    @property
    def quoted(self) -> str:
        return self.name.quoted

    @property
    def written(self) -> list[WalkColumn]:
        """The columns that can be given a value."""
        return [column for column in self.columns if not column.generated and column.identity != "a"]

    @property
    def shown(self) -> list[WalkColumn]:
        return [column for column in self.columns if column.sent]

    @property
    def found_by(self) -> frozenset[str] | None:
        """The columns by which a destination finds a row; None: by all of them."""
        key, shown = {c.name for c in self.columns if c.key}, {c.name for c in self.shown}
        index = {c.name for c in self.columns if c.identifies}
        sent = {"d": key, "f": shown, "i": index}.get(self.identity, set()) & shown
        if key and key <= sent:
            return frozenset(key)
        return frozenset(index) if index and index == sent else None


def look(connection: Connection) -> list[WalkTable]:
    """The tables as they are now, to this session; in an order of their own, so that a seed replays."""
    listing = connection.info.server_version >= 150_000
    sent = f"attname = ANY (pt.attnames) AND (attgenerated = '' OR {connection.info.server_version} >= 180000)"
    query = _LOOK.format(
        row_filter="pt.rowfilter" if listing else "NULL",
        sent=f"coalesce({sent}, false)" if listing else "attgenerated = ''",
    )
    rows = connection.execute(query).fetchall()
    return [
        WalkTable(TableName(schema, name), *rest, tuple(WalkColumn(**column) for column in columns))
        for schema, name, *rest, columns in rows
    ]


def schemas(connection: Connection) -> list[str]:
    query = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$|headrace$)' ORDER BY 1"
    return [name for (name,) in connection.execute(query)]


def hashed(remainder: int, modulus: int = PARTS) -> str:
    return f"FOR VALUES WITH (MODULUS {modulus}, REMAINDER {remainder})"


def labels(connection: Connection) -> list[str]:
    query = "SELECT enumlabel FROM pg_enum WHERE enumtypid = 'public.mood'::regtype ORDER BY enumsortorder"
    return [label for (label,) in connection.execute(query)]


def attributes(connection: Connection) -> list[str]:
    query = """SELECT attname FROM pg_attribute JOIN pg_type ON typrelid = attrelid
        WHERE pg_type.oid = 'public.pair'::regtype AND NOT attisdropped ORDER BY attnum"""
    return [name for (name,) in connection.execute(query)]


def checks(connection: Connection) -> list[str]:
    """The names of the domain's constraints."""
    query = "SELECT conname FROM pg_constraint WHERE contypid = 'public.score'::regtype AND contype = 'c' ORDER BY 1"
    return [name for (name,) in connection.execute(query)]


def domain_is_required(connection: Connection) -> bool:
    row = connection.execute("SELECT typnotnull FROM pg_type WHERE oid = 'public.score'::regtype").fetchone()
    return row is not None and bool(row[0])


def value(connection: Connection, chance: random.Random, type_: str, number: int) -> str:
    """A literal of a type; another one for another number, where the type has so many."""
    if type_ == "mood":
        return "'" + chance.choice(labels(connection)) + "'"
    if type_ == "pair":
        return f"ROW({', '.join(str(number + i) for i, _ in enumerate(attributes(connection)))})::pair"
    return TYPES[type_](number)
