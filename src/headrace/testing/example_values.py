"""Values of every type that a column may have: extremes, empty ones, and those that are easily taken for another.

Families are what a destination's test is made of: a table each. Values are as Headrace hands them over (`pgtypes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ..pgtypes.registry import builtin_type
from ..schema import Column, PgType, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema

__all__ = ["FAMILIES", "example_type", "family_rows", "family_table"]

_TEXTS = ["", " ", "NULL", "\\N", '"', "a,b", "a\r\nb", "\t", "{a,b}", "😀", "é", "\ufeff", "'", "%s {} $1", "x" * 3000]
_LOCAL = [
    datetime(1, 1, 1),  # noqa: DTZ001 - timestamp has no zone
    datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
    datetime(1969, 12, 31, 23, 59, 59, 500_000),  # noqa: DTZ001
    datetime(2024, 3, 31, 2, 30, 0, 123_456),  # noqa: DTZ001 - a time that summer leaves out in many places
]
_UTC = [value.replace(tzinfo=UTC) for value in _LOCAL]
_DATES = [date(1, 1, 1), date(9999, 12, 31), date(2000, 2, 29), date(1969, 12, 31)]
_UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


@lru_cache(1)
def _builtin() -> dict[str, PgType]:
    return {found.name: found for found in map(builtin_type, range(16_384)) if found is not None}


def _own(oid: int, name: str, kind: str = "b", **given: Any) -> PgType:
    return PgType(oid, name, schema="public", kind=kind, **given)


def _array(oid: int, element: PgType) -> PgType:
    return _own(oid, f"_{element.name}", element=element)


_MOOD = _own(90_001, "mood", "e", members=("sad", "ok", 'very, "happy"', "NULL", "😀"))
_PAIR = _own(90_002, "pair", "c", members=("a 23 -1", "b 25 -1"))
_HSTORE = _own(90_006, "hstore")
_OF_USERS = {
    "mood": _MOOD,
    "pair": _PAIR,
    "price": _own(90_003, "price", "d", base=PgType(1700, "numeric"), base_typmod=(10 << 16 | 2) + 4),
    "tags": _own(90_004, "tags", "d", base=PgType(1009, "_text", element=PgType(25, "text"))),
    "hstore": _HSTORE,
    "citext": _own(90_007, "citext"),
    "ltree": _own(90_008, "ltree"),
    "lquery": _own(90_009, "lquery"),
    "ltxtquery": _own(90_010, "ltxtquery"),
    "floatrange": _own(90_011, "floatrange", "r"),
    "_mood": _array(90_101, _MOOD),
    "_pair": _array(90_102, _PAIR),
    "_hstore": _array(90_106, _HSTORE),
}


def example_type(name: str) -> tuple[PgType, int]:
    """A type by its name, and its typmod: `numeric(10,2)`, `_numeric(10,2)`, `varchar(3000)`, `bit(5)`, `mood`."""
    plain, _, modifiers = name.rstrip(")").partition("(")
    numbers = [int(number) for number in modifiers.split(",") if number]
    typmod = -1
    if plain.endswith("numeric") and numbers:
        typmod = (numbers[0] << 16 | numbers[1]) + 4
    elif numbers:
        # The length of characters counts a header, that of bits does not.
        typmod = numbers[0] if plain == "bit" else numbers[0] + 4
    return _OF_USERS.get(plain) or _builtin()[plain], typmod


FAMILIES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "integers": {
        "bool": [True, False],
        "int2": [-(2**15), 2**15 - 1, 0],
        "int4": [-(2**31), 2**31 - 1, 0],
        "int8": [-(2**63), 2**63 - 1, 0],
        "oid": [0, 2**32 - 1],
    },
    "floats": {
        "float4": [0.1, -0.0, 1e-45, 3.4028235e38, float("nan"), float("inf"), float("-inf"), 123456.7],
        "float8": [0.1, -0.0, 5e-324, 1.7976931348623157e308, float("nan"), float("inf"), float("-inf"), 1e15],
    },
    "decimals": {
        "numeric(10,2)": [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99"), Decimal("-99999999.99")],
        "numeric(18,18)": [Decimal("0.999999999999999999"), Decimal("0.000000000000000001")],
        "numeric(38,0)": [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0)],
        "numeric(38,10)": [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), Decimal("1.0000000000")],
        "numeric(38,38)": [Decimal("0." + "9" * 38), Decimal("-0." + "0" * 37 + "1")],
    },
    "unbounded_numbers": {
        "numeric": ["NaN", "Infinity", "0.000", "1.500", "1" + "0" * 130, "7" * 1000 + "." + "3" * 500],
        "numeric(60,2)": ["9" * 58 + ".99", "-0.01"],
        "money": ["$1.50", "-$92,233,720,368,547,758.08"],
    },
    "texts": {
        "text": _TEXTS,
        "varchar(3000)": _TEXTS,
        "bpchar(5)": ["     ", "a    ", "NULL "],
        "name": ["", "NULL", "a b"],
        "char": ["a", '"', "\\"],
        "citext": ["", "Äpfel"],
        "xml": ["<a>é😀</a>", ""],
        "refcursor": ["c1"],
    },
    "bytes": {"bytea": [b"", b"\x00", b"\xde\xad\xbe\xef", b"\n\r,\"'\\", bytes(range(256)) * 20]},
    "dates_and_timestamps": {"date": _DATES, "timestamp": _LOCAL, "timestamptz": _UTC},
    "times_and_intervals": {
        "time": ["24:00:00", "00:00:00", "12:34:56.5"],
        "timetz": ["24:00:00+00", "12:00:00-15:59:59", "12:00:00+05:30"],
        "interval": ["00:00:00", "1 year", "1 mon -1 days", "-1 days +00:00:01", "-00:00:00.5", "100000:00:00"],
    },
    "uuid": {"uuid": ["00000000-0000-0000-0000-000000000000", _UUID, "ffffffff-ffff-ffff-ffff-ffffffffffff"]},
    "json": {
        "json": ['{"b": 1,  "a" : [1,2 ] , "b":2}', "null", '"\\u00e9"', '""', "1e400", "{}"],
        "jsonb": ['{"a": 1.50, "b": 1, "aa": 2}', "null", "[]", '"NULL"', "12345678901234567890.123"],
        "jsonpath": ['$."a"[*]?(@ > 1)'],
    },
    "networks_and_bits": {
        "inet": ["127.0.0.1", "10.0.0.1/8", "::", "::ffff:1.2.3.4", "fe80::/10"],
        "cidr": ["10.0.0.0/8", "::1/128"],
        "macaddr": ["08:00:2b:01:02:03"],
        "macaddr8": ["08:00:2b:01:02:03:04:05"],
        "bit(5)": ["00000", "10101"],
        "varbit": ["", "1", "100000001"],
    },
    "ranges": {
        "int4range": ["empty", "(,)", "[1,11)"],
        "numrange": ["[1.10,2]", "(,1e5)"],
        "tstzrange": ["empty", '["2024-01-01 00:00:00+00",infinity]'],
        "int4multirange": ["{}", "{[1,3),[5,9)}"],
        "floatrange": ["[0.1,0.2)"],
    },
    "geometry_and_search": {
        "point": ["(1,2.5)"],
        "box": ["(1,1),(0,0)"],
        "polygon": ["((0,0),(1,1),(1,0))"],
        "tsvector": ["'a' 'b':2 'c d'"],
        "tsquery": ["'a' & !'b'"],
        "ltree": ["Top.Science", ""],
        "lquery": ["*.a{1,2}"],
        "ltxtquery": ["a & b*"],
    },
    "system_types": {
        "pg_lsn": ["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"],
        "xid": ["0", "4294967295"],
        "xid8": ["0", "18446744073709551615"],
        "cid": ["0", "4294967295"],
        "tid": ["(0,1)", "(4294967295,65535)"],
    },
    "enums": {"mood": ["sad", 'very, "happy"', "NULL", "😀"]},
    "domains": {
        "price": [Decimal("1.50"), Decimal("-0.01")],
        "tags": [[], ["a", None, "NULL"]],
    },
    "composites": {"pair": ['(1,"a ""b"", c")', "(,)"]},
    "maps": {"hstore": [{}, {"a": "1"}, {"a": None, "b": "NULL"}, {'a"b': "c\\d", "": ""}]},
    "arrays_of_numbers": {
        "_bool": [[True, None, False], []],
        "_int2": [[-(2**15), None], []],
        "_int4": [[], [1, None, -3], [None]],
        "_int8": [[2**63 - 1, None], []],
        "_float4": [[0.1, None, float("nan")], []],
        "_float8": [[0.1, None, float("inf")], []],
        "_numeric(10,2)": [[Decimal("1.50"), None], []],
        "_numeric": [["NaN", None, "1.500"], []],
    },
    "arrays_of_texts": {
        "_text": [[], ["", None, "NULL", 'a,"b\\'], ["{}"]],
        "_varchar(3000)": [["é", None], []],
        "_bytea": [[b"\x00", None, b""], []],
        "_uuid": [[_UUID, None], []],
        "_jsonb": [['{"a": 1}', None], []],
        "_time": [["24:00:00", None], []],
        "_inet": [["::", None], []],
    },
    "arrays_of_dates": {
        "_date": [[*_DATES, None], []],
        "_timestamp": [[*_LOCAL, None], []],
        "_timestamptz": [[*_UTC, None], []],
    },
    "arrays_of_own_types": {
        "_mood": [["sad", "NULL", None], []],
        "_pair": [["(1,a)", None], []],
        "_hstore": [[{"a": "1", "b": None}, None, {}], []],
    },
}  # fmt: skip
"""By family and type; NULL is a value of each besides."""


def family_table(family: str) -> ReplicatedTableSchema:
    """A table with a key `id` and a column for each type of a family."""
    columns = [Column("id", 1, _builtin()["int8"], nullable=False, key_position=1)]
    for attnum, name in enumerate(FAMILIES[family], 2):
        type_, typmod = example_type(name)
        columns.append(Column(f"c{attnum}", attnum, type_, typmod))
    table = TableSchema(
        17_000 + list(FAMILIES).index(family), TableName("public", family), tuple(columns), identity_attnums=(1,)
    )
    return ReplicatedTableSchema(table, ReplicationMask.everything(table))


def family_rows(family: str) -> list[dict[str, Any]]:
    """Rows in which every value of the family is, and a last one of NULLs."""
    values = list(FAMILIES[family].values())
    rows = [[of[i % len(of)] for of in values] for i in range(max(map(len, values)))]
    names = [column.name for column in family_table(family).columns]
    return [dict(zip(names, (i, *row), strict=True)) for i, row in enumerate([*rows, [None] * len(values)])]
