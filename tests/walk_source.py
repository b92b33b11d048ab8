"""The source of a random walk as Postgres describes it: its tables, columns, types; and values to put into them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from headrace.schema import TableName, quote_identifier

__all__ = ["NAMES", "SCHEMAS", "TYPES", "WIDER", "WalkColumn", "WalkTable", "attributes", "labels", "look", "value"]

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
}
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
        'name', attname, 'type', format_type(atttypid, atttypmod), 'required', attnotnull, 'default', atthasdef,
        'generated', attgenerated <> '', 'key', coalesce(attnum = ANY (p.conkey), false), 'sent', {sent},
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
    key: bool
    sent: bool
    """Whether the publication shows it."""
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
        return [column for column in self.columns if not column.generated]

    @property
    def shown(self) -> list[WalkColumn]:
        return [column for column in self.columns if column.sent]


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


def value(connection: Connection, chance: random.Random, type_: str, number: int) -> str:
    """A literal of a type; another one for another number, where the type has so many."""
    if type_ == "mood":
        return "'" + chance.choice(labels(connection)) + "'"
    if type_ == "pair":
        return f"ROW({', '.join(str(number + i) for i, _ in enumerate(attributes(connection)))})::pair"
    return TYPES[type_](number)
