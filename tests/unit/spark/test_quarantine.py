"""What is kept of a value that no Arrow type holds."""

from __future__ import annotations

import json

import pyarrow as pa

from headrace.pgtypes.contract import Rejected
from headrace.pgtypes.registry import builtin_type
from headrace.schema import Column, PgType, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema
from headrace.spark.quarantine import rejected_rows


def kind(oid: int) -> PgType:
    found = builtin_type(oid)
    assert found is not None
    return found


def schema(*key: str) -> ReplicatedTableSchema:
    names = {"id": 20, "name": 25, "at": 1114}
    columns = tuple(
        Column(name, n, kind(oid), key_position=key.index(name) + 1 if name in key else None)
        for n, (name, oid) in enumerate(names.items(), 1)
    )
    table = TableSchema(1, TableName("public", "t"), columns, identity_attnums=tuple(range(1, len(key) + 1)))
    return ReplicatedTableSchema(table, ReplicationMask.everything(table))


ROWS = pa.record_batch(
    {"id": pa.array([1, 2, 3]), "name": pa.array(['a"\\b\n', None, "c"]), "at": pa.nulls(3, pa.timestamp("us"))}
)
FOUND = {"at": Rejected(pa.array([0, 2]), pa.array(["infinity", "-infinity"]))}


def test_a_value_keeps_its_text_column_and_key() -> None:
    rejected = rejected_rows(schema("id"), ROWS, FOUND).to_pylist()
    assert [json.loads(row["key"]) for row in rejected] == [{"id": "1"}, {"id": "3"}]
    assert [(row["column"], row["text"]) for row in rejected] == [("at", "infinity"), ("at", "-infinity")]
    assert {row["commit_lsn"] for row in rejected} == {None}


def test_a_key_is_json_whatever_it_holds() -> None:
    rejected = rejected_rows(schema("id", "name"), ROWS, {"at": Rejected(pa.array([0, 1]), pa.array(["x", "y"]))})
    keys = [json.loads(row["key"]) for row in rejected.to_pylist()]
    assert keys == [{"id": "1", "name": 'a"\\b\n'}, {"id": "2", "name": None}]


def test_a_table_without_key_has_none() -> None:
    assert rejected_rows(schema(), ROWS, FOUND).column("key").to_pylist() == [None, None]


def test_no_value_is_no_row() -> None:
    assert rejected_rows(schema("id"), ROWS, {}).num_rows == 0
