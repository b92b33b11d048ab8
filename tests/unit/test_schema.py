"""schema: names, keys, and what of a table is replicated."""

from __future__ import annotations

import pickle

import pytest

from headrace.schema import (
    Column,
    PgType,
    ReplicaIdentity,
    ReplicatedTableSchema,
    ReplicationMask,
    TableName,
    TableSchema,
    quote_identifier,
)

INT4 = PgType(23, "int4")
COLUMNS = (
    Column("a", 1, INT4, key_position=2),
    Column("b", 3, INT4),
    Column("c", 4, INT4, key_position=1),
)
TABLE = TableSchema(16384, TableName("public", "t"), COLUMNS, identity_attnums=(1, 4))


@pytest.mark.parametrize(("name", "quoted"), [("t", '"t"'), ('a"b', '"a""b"'), ("Ä b", '"Ä b"'), ("", '""')])
def test_quoting(name: str, quoted: str) -> None:
    assert quote_identifier(name) == quoted


def test_no_nul_in_a_name() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote_identifier("a\0b")


def test_table_names() -> None:
    name = TableName('My "Schema', "t.x")
    assert (str(name), name.quoted) == ('My "Schema.t.x', '"My ""Schema"."t.x"')
    assert sorted([TableName("b", "a"), TableName("a", "z")])[0] == TableName("a", "z")


def test_key_is_in_key_order() -> None:
    assert [column.name for column in TABLE.key] == ["c", "a"]
    assert TableSchema(1, TableName("s", "keyless"), ()).key == ()


def test_column_by_name() -> None:
    assert TABLE.column("b").attnum == 3
    with pytest.raises(KeyError, match=r"public\.t has no column 'nosuch'"):
        TABLE.column("nosuch")


def test_an_attnum_is_of_one_column() -> None:
    with pytest.raises(ValueError, match="two columns with one attnum"):
        TableSchema(1, TableName("s", "t"), (Column("a", 1, INT4), Column("b", 1, INT4)))


def test_a_mask_selects_columns_and_identity_in_table_order() -> None:
    replicated = ReplicatedTableSchema(TABLE, ReplicationMask(frozenset({4, 3})), "(a > 1)")
    assert [column.name for column in replicated.columns] == ["b", "c"]
    assert [column.name for column in replicated.identity] == ["c"]
    everything = ReplicatedTableSchema(TABLE, ReplicationMask.everything(TABLE))
    assert everything.columns == COLUMNS


def test_schemas_are_frozen_hashable_and_pickle() -> None:
    replicated = ReplicatedTableSchema(TABLE, ReplicationMask.everything(TABLE))
    assert pickle.loads(pickle.dumps(replicated)) == replicated
    assert len({replicated, pickle.loads(pickle.dumps(replicated))}) == 1
    with pytest.raises(AttributeError):
        replicated.row_filter = "x"  # type: ignore[misc]


def test_identity_values_are_the_catalogs() -> None:
    assert {member.name: member.value for member in ReplicaIdentity} == {
        "DEFAULT": "d", "FULL": "f", "INDEX": "i", "NOTHING": "n",
    }  # fmt: skip
