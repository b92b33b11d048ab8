"""A table of all types, with values of each that every destination can hold."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from psycopg import sql

__all__ = ["EVERY_TYPE", "TYPES_DDL", "assignments", "columns_ddl", "row_of"]

_TEXTS = ("", " ", "NULL", "\\N", '"', "a,b", "a\r\nb", "\t", "{a,b}", "😀", "é", "\ufeff", "'", "x" * 3000)

TYPES_DDL = """
CREATE EXTENSION hstore;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'very, "happy"', 'NULL', '😀');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN price AS numeric(10, 2);
CREATE DOMAIN tags AS text[];
"""

EVERY_TYPE: Mapping[str, Sequence[str]] = {
    "boolean": ("t", "f"),
    "smallint": ("-32768", "32767", "0"),
    "integer": ("-2147483648", "2147483647", "7"),
    "bigint": ("-9223372036854775808", "9223372036854775807", "7"),
    "oid": ("0", "4294967295"),
    "real": ("NaN", "Infinity", "-0", "1e-45", "3.4028235e38", "0.1", "123456.7", "1e6"),
    "double precision": ("NaN", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1", "1e15"),
    "numeric(10,2)": ("0", "-0.01", "99999999.99", "-99999999.99"),
    "numeric(18,18)": ("0.999999999999999999", "0.000000000000000001"),
    "numeric(38,10)": ("9" * 28 + "." + "9" * 10, "-0.0000000001", "1"),
    "numeric": ("NaN", "Infinity", "0.000", "1.500", "1e130", "1e-130", "7" * 1000 + "." + "3" * 500),
    "text": _TEXTS,
    "varchar(3000)": _TEXTS,
    "char(5)": ("", "a", "NULL"),
    "name": ("", "NULL", "a b"),
    '"char"': ("a", '"', "\\"),
    "bytea": ("\\x", "\\x00", "\\xdeadbeef", "\\x0a0d2c22"),
    "date": ("0001-01-01", "9999-12-31", "2000-02-29", "1969-12-31"),
    "timestamp": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.5"),
    "timestamptz": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00", "2024-02-29 12:34:56.789+05:30"),
    "time": ("24:00:00", "00:00:00", "12:34:56.5"),
    "timetz": ("24:00:00+00", "12:00:00-15:59:59", "12:00:00+05:30"),
    "interval": ("0", "1 year", "1 mon -1 day", "-1 day 1 second", "-0.5 seconds", "100000:00:00", "-14 months"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
    "json": ('{"b": 1,  "a" : [1,2 ] , "b":2}', "null", '"\\u00e9"', '""'),
    "jsonb": ('{"b": 1, "aa": 2, "a": 1.50}', "null", "[]", '"NULL"'),
    "xml": ("<a>é😀</a>", ""),
    "money": ("1.50", "-92233720368547758.08"),
    "bit(5)": ("00000", "10101"),
    "bit varying": ("", "1", "100000001"),
    "inet": ("127.0.0.1", "10.0.0.1/8", "::", "::ffff:1.2.3.4", "fe80::/10"),
    "cidr": ("10.0.0.0/8", "::1/128"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "pg_lsn": ("0/0", "16/B374D848"),
    "point": ("(1,2.5)",),
    "tsvector": ("a b:2 'c d'",),
    "int4range": ("empty", "(,)", "[1,10]"),
    "tstzrange": ("empty", "[2024-01-01 00:00:00+00,infinity]"),
    "int4multirange": ("{}", "{[1,3), [5,9)}"),
    "mood": ("sad", 'very, "happy"', "NULL", "😀"),
    "pair": ('(1,"a ""b"", c")', "(,)"),
    "price": ("1.5", "-0.01"),
    "tags": ("{}", '{a,NULL,"NULL"}'),
    "hstore": ("", "a=>1", 'a=>NULL, b=>"NULL"', '"a\\"b"=>"c\\\\d"'),
    "integer[]": ("{}", "{1,NULL,-3}"),
    "real[]": ("{0.1,NaN,NULL}",),
    "text[]": ("{}", '{"",NULL,"NULL","a,\\"b\\\\"}'),
    "numeric(10,2)[]": ("{1.5,NULL}",),
    "timestamptz[]": ('{"2024-02-29 12:34:56.789+00",NULL}',),
    "uuid[]": ("{00000000-0000-0000-0000-000000000000}",),
    "jsonb[]": ('{"{\\"a\\": 1}",NULL}',),
    "mood[]": ('{sad,"NULL",NULL}',),
    "bytea[]": ('{"\\\\x00",NULL}',),
    "boolean[]": ("{t,f,NULL}",),
    "date[]": ("{2024-02-29,NULL}",),
}
"""Texts of values, by type. None that Postgres finds equal to another spelt differently is part of a key."""


def _column(number: int) -> str:
    return f"c{number}"


def columns_ddl() -> str:
    """All of them as columns `c0`, `c1`, …, in the order of `EVERY_TYPE`."""
    return ", ".join(f"{_column(number)} {type_name}" for number, type_name in enumerate(EVERY_TYPE))


def row_of(chance: random.Random) -> sql.Composed:
    """A value for each, or NULL, separated by commas."""
    return sql.SQL(", ").join(_value(chance, texts) for texts in EVERY_TYPE.values())


def assignments(chance: random.Random, count: int) -> sql.Composed:
    """New values for some of the columns, as UPDATE wants them."""
    chosen = chance.sample(list(enumerate(EVERY_TYPE.values())), count)
    pairs = [(sql.Identifier(_column(number)), _value(chance, texts)) for number, texts in chosen]
    return sql.SQL(", ").join(sql.SQL("{} = {}").format(column, value) for column, value in pairs)


def _value(chance: random.Random, texts: Sequence[str]) -> sql.Composable:
    # Untyped: the server reads it as the column's type.
    return sql.SQL("NULL") if chance.random() < 0.15 else sql.Literal(chance.choice(texts))
