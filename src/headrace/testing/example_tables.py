"""Tables for tests of destinations: with a key, a composite one, none, and one of many types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..schema import Column, ReplicaIdentity, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema
from .example_values import example_type

__all__ = [
    "INSERTS_ONLY",
    "LINES",
    "ORDERS",
    "SAMPLES",
    "VISITS",
    "altered_table",
    "example_column",
    "example_table",
]


def example_table(
    table_id: int,
    name: str,
    columns: dict[str, str],
    key: tuple[str, ...] = (),
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
) -> ReplicatedTableSchema:
    """A table `public.name` with columns of types by name, as `example_type` has them; numeric is numeric(10, 2)."""
    own = tuple(
        replace(
            example_column(column, attnum, "numeric(10,2)" if type_name == "numeric" else type_name),
            nullable=column not in key,
            key_position=key.index(column) + 1 if column in key else None,
        )
        for attnum, (column, type_name) in enumerate(columns.items(), 1)
    )
    full = identity is ReplicaIdentity.FULL
    attnums = tuple(column.attnum for column in own if full or column.key_position is not None)
    table = TableSchema(table_id, TableName("public", name), own, identity, attnums)
    return ReplicatedTableSchema(table, ReplicationMask.everything(table))


def example_column(name: str, attnum: int, type_name: str = "text", missing: str | None = None) -> Column:
    """A column; `missing` is the text of what rows older than it show."""
    type_, typmod = example_type(type_name)
    return Column(name, attnum, type_, typmod, missing=missing)


def altered_table(
    schema: ReplicatedTableSchema,
    *columns: Column,
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
    identity_attnums: tuple[int, ...] | None = None,
) -> ReplicatedTableSchema:
    """Another version of a table, with these columns. Its identity is the one it had, unless it is given."""
    given: dict[str, Any] = {}
    if identity_attnums is not None:
        given = {"replica_identity": identity, "identity_attnums": identity_attnums}
    in_order = tuple(sorted(columns, key=lambda column: column.attnum))
    table = replace(schema.table, columns=in_order, **given)
    return replace(schema, table=table, mask=ReplicationMask.everything(table))


ORDERS = example_table(16_401, "orders", {"id": "int8", "name": "text", "note": "text"}, ("id",))
# The key's order is not that of the columns.
LINES = example_table(
    16_402, "order lines", {"number": "int4", "order": "text", "amount": "numeric"}, ("order", "number")
)
VISITS = example_table(16_403, "visits", {"page": "text", "seconds": "int4"}, identity=ReplicaIdentity.FULL)
INSERTS_ONLY = example_table(16_404, "inserts_only", {"page": "text", "seconds": "int4"})
SAMPLES = example_table(
    16_405,
    "samples",
    {"id": "int8", "yes": "bool", "single": "float4", "double": "float8", "amount": "numeric", "data": "bytea",
     "day": "date", "local": "timestamp", "at": "timestamptz", "numbers": "_int4", "words": "_text"},
    ("id",),
)  # fmt: skip
