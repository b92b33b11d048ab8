"""postgres.ddl_messages: reads what the event triggers say; anything else is an error that tells what is wrong."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from headrace.errors import ProtocolError
from headrace.postgres.ddl_messages import (
    PUBLICATION_PREFIX,
    DdlMessage,
    PublicationMessage,
    emitting_xid,
    is_ddl_prefix,
    parse_ddl,
    parse_publication,
)
from headrace.schema import Column, PgType, ReplicaIdentity, TableName, TableSchema

INT4 = {
    "oid": 23, "name": "int4", "schema": "pg_catalog", "kind": "b", "delimiter": ",", "base": None, "element": None,
    "typmod": -1, "members": None,
}  # fmt: skip
COLUMN = {
    "table": 16_400, "attnum": 2, "name": "größe", "type": 23, "typmod": -1, "nullable": False, "default": "1",
    "generated": False, "comment": None, "missing": "1",
}  # fmt: skip
CATALOG: dict[str, Any] = {
    "tables": [
        {"oid": 16_400, "name": "t", "schema": "public", "identity": "d", "comment": None, "leaves": [16_401, 16_402]}
    ],
    "columns": [COLUMN],
    "indexes": [{"table": 16_400, "primary": True, "identity": False, "immediate": True, "attnums": [2]}],
    "types": [INT4],
}
MESSAGE = {"version": 1, "tag": "ALTER TABLE", "rewrite": 2, "plain": True, "catalog": CATALOG}


def content(**changed: object) -> bytes:
    return json.dumps({**MESSAGE, **changed}, ensure_ascii=False).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in MESSAGE.items() if key != name}).encode()


@pytest.mark.parametrize(
    ("prefix", "oid"),
    [
        ("headrace.ddl.16400", 16_400),
        ("headrace.ddl.4294967295", (1 << 32) - 1),
        ("headrace.ddl.4294967296", None),
        ("headrace.ddl.", None),
        ("headrace.ddl.-1", None),
        ("headrace.ddl.1 ", None),
        ("headrace.ddl.²", None),
        ("headrace.ddl", None),
        ("16400", None),
        ("Headrace.ddl.1", None),
        (PUBLICATION_PREFIX, None),
        ("", None),
    ],
)
def test_the_prefix_names_the_table(prefix: str, oid: int | None) -> None:
    assert is_ddl_prefix(prefix) == oid


def test_a_message_has_the_table_as_it_is_now() -> None:
    column = Column("größe", 2, PgType(23, "int4"), -1, False, "1", 1)
    table = TableSchema(
        16_400, TableName("public", "t"), (column,), ReplicaIdentity.DEFAULT, (2,), leaves=(16_401, 16_402)
    )
    message = parse_ddl(content())
    assert message == DdlMessage("ALTER TABLE", table, False, 2, True)
    assert message.table is not None
    assert message.table.columns[0].missing == "1"


def test_a_dropped_table_has_no_catalog() -> None:
    dropped = {"version": 1, "tag": "DROP TABLE", "rewrite": 0, "plain": False, "dropped": True}
    assert parse_ddl(json.dumps(dropped).encode()) == DdlMessage("DROP TABLE", None, dropped=True)


def test_a_publication() -> None:
    told = {"version": 1, "tag": "ALTER PUBLICATION", "publication": 'p "1"'}
    assert parse_publication(json.dumps(told).encode()) == PublicationMessage("ALTER PUBLICATION", 'p "1"')


def test_what_a_composite_is_made_of_goes_all_the_way_down() -> None:
    enum = {**INT4, "oid": 50, "name": "mood", "kind": "e", "members": ["sad", "o k"]}
    domain = {**INT4, "oid": 51, "name": "d", "kind": "d", "base": 50}
    array = {**INT4, "oid": 52, "name": "_d", "element": 51}
    pair = {**INT4, "oid": 53, "name": "pair", "kind": "c", "members": [
        {"name": "a", "type": 23, "typmod": -1}, {"name": "m", "type": 52, "typmod": 4}]}  # fmt: skip
    outer = {**INT4, "oid": 54, "name": "outer", "kind": "c", "members": [{"name": "p", "type": 53, "typmod": -1}]}
    catalog = {**CATALOG, "types": [INT4, enum, domain, array, pair, outer], "columns": [{**COLUMN, "type": 54}]}
    table = parse_ddl(content(catalog=catalog)).table
    assert table is not None
    assert table.columns[0].type.members == ("p 53 -1", "p.a 23 -1", "p.m 52 4", "p.m.sad", "p.m.o k")


@pytest.mark.parametrize(
    ("garbage", "told"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "version is missing"),
        (without("tag"), "tag is missing"),
        (without("rewrite"), "rewrite is missing"),
        (without("plain"), "plain is missing"),
        (without("catalog"), "catalog is missing"),
        (content(version=0), "version is 0"),
        (content(version="1"), "version is missing or is no int"),
        (content(version=True), "version is missing or is no int"),
        (content(rewrite="2"), "rewrite is missing or is no int"),
        (content(plain=1), "plain is missing or is no bool"),
        (content(dropped="yes"), "dropped is missing or is no bool"),
        (content(tag=None), "tag is missing or is no str"),
        (content(catalog=[]), "catalog is missing or is no dict"),
        (content(catalog={}), "field 'tables'"),
        (content(catalog={**CATALOG, "tables": None}), "0 tables instead of one"),
        (content(catalog={**CATALOG, "types": []}), "field 23"),
        (content(catalog={**CATALOG, "columns": [{"table": 16_400}]}), "field 'name'"),
        (content(catalog={**CATALOG, "columns": [COLUMN, COLUMN]}), "a value (ValueError)"),
        (content(catalog={**CATALOG, "tables": [{**CATALOG["tables"][0], "identity": "x"}]}), "a value (ValueError)"),
        (content(catalog={**CATALOG, "types": [{**INT4, "element": 23}]}), "a value (RecursionError)"),
        (content(catalog={**CATALOG, "types": [3]}), "a value (TypeError)"),
    ],
)
def test_garbage_is_refused_with_what_is_wrong(garbage: bytes, told: str) -> None:
    with pytest.raises(ProtocolError, match="a DDL message cannot be read") as refused:
        parse_ddl(garbage)
    assert told in str(refused.value)


def test_a_later_version_says_so() -> None:
    with pytest.raises(ProtocolError, match="has version 2, this program knows up to 1") as refused:
        parse_ddl(content(version=2, tag=None, catalog="something new"))
    assert "a later version of headrace is installed at the source" in refused.value.hint


def test_a_publication_without_a_name() -> None:
    with pytest.raises(ProtocolError, match="publication is missing"):
        parse_publication(b'{"version": 1, "tag": "ALTER PUBLICATION"}')


def test_a_huge_message_of_somebody_else_takes_no_memory() -> None:
    """The receiver looks at all messages with our prefixes, before anybody knows who wrote them."""
    forged = b'{"version" : 1, "catalog" : [' + b"[]," * 1_000_000 + b'[]], "xid" : 700}'
    tracemalloc.start()
    try:
        assert emitting_xid("headrace.ddl.16384", forged) is None
        assert emitting_xid("headrace.ddl.16384", b'{"version" : 1, "xid" : 700, ' + forged[1:]) == 700
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(forged)
