"""encoding: the stored form is pinned, and what cannot be read is refused with the right error."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headrace.errors import StoreCorrupt, StoreVersionError
from headrace.schema import Column, PgType, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema
from headrace.stores.encoding import decode_mask, decode_schema, decode_state, encode_schema

SCHEMA = ReplicatedTableSchema(
    TableSchema(7, TableName("public", "t"), (Column("id", 1, PgType(20, "int8"), key_position=1),)),
    ReplicationMask(frozenset({1})),
)
STORED = (
    '{"format":1,"id":7,"schema":"public","name":"t","columns":[{"name":"id","attnum":1,"type":{"oid":20,"name":"int8",'
    '"schema":"pg_catalog","kind":"b","element":null,"base":null,"base_typmod":-1,"delimiter":","},"typmod":-1,'
    '"nullable":true,"default":null,"key_position":1,"generated":false}],"replica_identity":"d","identity_attnums":[],'
    '"published_attnums":[1],"row_filter":null}'
)


def test_format_1_is_read_for_ever() -> None:
    assert decode_schema(STORED) == SCHEMA
    assert encode_schema(SCHEMA) == STORED


def test_comments_are_kept_and_a_schema_without_them_is_stored_as_before() -> None:
    told = 'It\'s "quoted", \\ and\nünï 🚰'
    column = replace(SCHEMA.table.columns[0], comment=told)
    stored = encode_schema(replace(SCHEMA, table=replace(SCHEMA.table, columns=(column,), comment=f"table: {told}")))
    assert stored.isascii()
    table = decode_schema(stored).table
    assert (table.comment, table.columns[0].comment) == (f"table: {told}", told)
    without = decode_schema(STORED).table
    assert (without.comment, without.columns[0].comment) == (None, None)


def test_a_comment_makes_no_other_schema() -> None:
    column = replace(SCHEMA.table.columns[0], comment="c")
    commented = replace(SCHEMA, table=replace(SCHEMA.table, columns=(column,), comment="t"))
    assert commented == SCHEMA
    assert hash(commented) == hash(SCHEMA)


def test_what_tells_of_a_rewrite_is_kept_and_makes_no_other_schema() -> None:
    told = replace(SCHEMA, table=replace(SCHEMA.table, natts=4, storage=16_999))
    assert told == SCHEMA
    table = decode_schema(encode_schema(told)).table
    assert (table.natts, table.storage) == (4, 16_999)


def test_a_column_list_is_remembered() -> None:
    assert decode_schema(encode_schema(replace(SCHEMA, listed=True))).listed
    assert not decode_schema(STORED).listed


def test_a_later_format_is_refused() -> None:
    with pytest.raises(StoreVersionError, match="format 2"):
        decode_schema(json.dumps({**json.loads(STORED), "format": 2}))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3", '{"format":1}', STORED.replace('"d"', '"?"')])
def test_what_is_no_schema_is_corrupt(text: str) -> None:
    with pytest.raises(StoreCorrupt):
        decode_schema(text)


@pytest.mark.parametrize(
    ("name", "detail"), [("readied", "{}"), ("sync_done", "{}"), ("ready", '["lsn"]'), ("ready", "3")]
)
def test_what_is_no_state_is_corrupt(name: str, detail: str) -> None:
    with pytest.raises(StoreCorrupt):
        decode_state(name, detail)


@pytest.mark.parametrize("text", ["1", "null", "[[1]]", "x"])
def test_what_is_no_mask_is_corrupt(text: str) -> None:
    with pytest.raises(StoreCorrupt):
        decode_mask(text)
