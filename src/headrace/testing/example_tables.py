"""Tables for tests of destinations: with a key, a composite one, none, and one of many types."""

from __future__ import annotations

from ..pgtypes.registry import builtin_type
from ..schema import Column, PgType, ReplicaIdentity, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema

__all__ = ["INSERTS_ONLY", "LINES", "ORDERS", "SAMPLES", "VISITS", "example_table"]

_OIDS = {
    "bool": 16, "bytea": 17, "int8": 20, "int4": 23, "text": 25, "float4": 700, "float8": 701, "date": 1082,
    "timestamp": 1114, "timestamptz": 1184, "numeric": 1700, "_int4": 1007, "_text": 1009,
}  # fmt: skip
_TWO_DIGITS = (10 << 16 | 2) + 4
"""The typmod of numeric(10, 2)."""


def example_table(
    table_id: int,
    name: str,
    columns: dict[str, str],
    key: tuple[str, ...] = (),
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
) -> ReplicatedTableSchema:
    """A table `public.name` with columns of built-in types, by name; numeric is numeric(10, 2)."""
    own = tuple(
        Column(
            column,
            attnum,
            _type(type_name),
            typmod=_TWO_DIGITS if type_name == "numeric" else -1,
            nullable=column not in key,
            key_position=key.index(column) + 1 if column in key else None,
        )
        for attnum, (column, type_name) in enumerate(columns.items(), 1)
    )
    full = identity is ReplicaIdentity.FULL
    attnums = tuple(column.attnum for column in own if full or column.key_position is not None)
    table = TableSchema(table_id, TableName("public", name), own, identity, attnums)
    return ReplicatedTableSchema(table, ReplicationMask.everything(table))


def _type(name: str) -> PgType:
    found = builtin_type(_OIDS[name])
    assert found is not None
    return found


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
