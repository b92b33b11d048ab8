"""Which tables can be cut by key."""

from __future__ import annotations

import pytest

from headrace.initial_copy.key_ranges import range_key
from headrace.schema import Column, PgType, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema

INT8, TEXT, UUID = PgType(20, "int8"), PgType(25, "text"), PgType(2950, "uuid")
DOMAIN = PgType(20_000, "ident", "public", "d", base=PgType(20_001, "inner", "public", "d", base=INT8))


def table(*columns: tuple[str, PgType, int | None], sent: set[int] | None = None, identity: tuple[int, ...] = (1,)):  # type: ignore[no-untyped-def]
    made = tuple(Column(name, n, t, key_position=key) for n, (name, t, key) in enumerate(columns, start=1))
    schema = TableSchema(1, TableName("public", "t"), made, identity_attnums=identity)
    return ReplicatedTableSchema(schema, ReplicationMask(frozenset(sent or range(1, len(made) + 1))))


@pytest.mark.parametrize(
    ("type", "usable"),
    [
        (PgType(21, "int2"), True), (PgType(23, "int4"), True), (INT8, True), (UUID, True),
        (PgType(1114, "timestamp"), True), (PgType(1184, "timestamptz"), True), (DOMAIN, True),
        (TEXT, False), (PgType(1700, "numeric"), False), (PgType(701, "float8"), False), (PgType(1082, "date"), False),
    ],
)  # fmt: skip
def test_types(type: PgType, usable: bool) -> None:
    assert (range_key(table(("id", type, 1))) is not None) is usable


def test_the_first_column_of_the_key_counts() -> None:
    key = range_key(table(("b", TEXT, 2), ("a", INT8, 1), identity=(1, 2)))
    assert key is not None
    assert key.name == "a"
    assert range_key(table(("b", TEXT, 1), ("a", INT8, 2), identity=(1, 2))) is None


def test_changes_must_carry_the_key() -> None:
    columns = (("id", INT8, 1), ("note", TEXT, None))
    assert range_key(table(*columns, sent={2})) is None
    assert range_key(table(*columns, identity=())) is None
    assert range_key(table(*columns, identity=(2,))) is None
    assert range_key(table(("id", INT8, None))) is None
