"""type_change against Postgres: what it calls the same or wider is so for real rows after ALTER TABLE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from headrace.pgtypes.registry import conversion_for
from headrace.postgres.catalog import table_schema
from headrace.schema import Column, TableName
from headrace.type_change import TypeChange, type_change

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]

INT2 = ("0", "-32768", "32767")
FLOATS = ("0.1", "3.4028235e38", "1e-45", "-0", "NaN", "Infinity", "-Infinity", "16777217", "1.17549435e-38")
NUMERICS = ("0", "1.50", "-0.01", "12345678.90", "NaN", "99999999.99")
TEXTS = ("", "a", "ü日本 ", "  x  ", "o'c\\\n")
STAMPS = ("2024-02-29 23:59:59.987", "0044-03-15 BC", "infinity", "10000-01-01", "2000-01-01 00:00:00.5")
TIMES = ("23:59:59.987", "24:00:00", "00:00:00.1")
INTERVALS = ("1 year -2 mons 3 days 04:05:06.789", "-1 day", "0.5 s", "1 mon 1 day 1 hour")
BITS = ("", "1", "101")


@dataclass(frozen=True, slots=True)
class Case:
    old: str
    new: str
    values: tuple[str, ...]
    since: int = 14


SAME_OR_WIDER = [
    Case("smallint", "integer", INT2),
    Case("smallint", "bigint", INT2),
    Case("integer", "bigint", (*INT2, "-2147483648")),
    Case("real", "double precision", FLOATS),
    Case("numeric(10,2)", "numeric(11,2)", NUMERICS),
    Case("numeric(10,2)", "numeric(38,2)", NUMERICS),
    Case("numeric(40,2)", "numeric(45,2)", NUMERICS),
    Case("numeric(3,-2)", "numeric(5,-2)", ("12345", "99900", "-50"), since=15),
    Case("numeric(3,5)", "numeric(4,5)", ("0.00123", "-0.00999"), since=15),
    Case("varchar(10)", "varchar(20)", TEXTS),
    Case("varchar(10)", "varchar", TEXTS),
    Case("varchar(10)", "text", TEXTS),
    Case("varchar", "text", TEXTS),
    Case("text", "varchar", TEXTS),
    Case("varchar(10)[]", "text[]", ('{a,"b c",NULL,""}', "{}", "{{a,b},{c,d}}")),
    Case("timestamp(3)", "timestamp(6)", STAMPS),
    Case("timestamp(3)", "timestamp", STAMPS),
    Case("timestamp", "timestamp(6)", STAMPS),
    Case("timestamptz(3)", "timestamptz(5)", STAMPS),
    Case("time(1)", "time(3)", TIMES),
    Case("timetz(1)", "timetz", ("23:59:59.987+02", "00:00:00.1-11:30")),
    Case("interval(1)", "interval(3)", INTERVALS),
    Case("interval(1)", "interval", INTERVALS),
    Case("interval day to second(1)", "interval day to second(3)", INTERVALS),
    Case("interval year to month", "interval", INTERVALS),
    Case("bit varying(3)", "bit varying(5)", BITS),
    Case("bit varying(3)", "bit varying", BITS),
    Case("price", "numeric(8,3)", ("1.5", "0")),
    Case("numeric(8,3)", "price", ("1.5", "0")),
    Case("price", "discounted", ("1.5", "0.001")),
    Case("price", "numeric(9,3)", ("1.5", "0")),
]

OTHERS = [
    Case("char(5)", "char(7)", ("a", "b  ")),
    Case("char(5)", "text", ("a", "b  ")),
    Case("text", "char(5)", ("a", "b  ")),
    Case("bit(3)", "bit varying(3)", ("101",)),
    Case("bigint", "integer", INT2),
    Case("integer", "numeric(20,0)", INT2),
    Case("double precision", "real", ("0.1",)),
    Case("numeric(10,2)", "numeric(12,4)", NUMERICS),
    Case("numeric(10,2)", "numeric(9,1)", ("1.55",)),
    Case("numeric(38,2)", "numeric(39,2)", NUMERICS),
    Case("numeric(10,2)", "numeric", NUMERICS),
    Case("timestamp(6)", "timestamp(3)", ("2024-01-01 00:00:00.123456",)),
    Case("timestamp", "timestamptz", ("2024-01-01",)),
    Case("timestamptz", "timestamp", ("2024-01-01",)),
    Case("interval", "interval day", INTERVALS),
    Case("date", "timestamp", ("2024-01-01",)),
    Case("json", "jsonb", ('{"b": 1,  "a": 2}',)),
    Case("json", "text", ('{"b": 1,  "a": 2}',)),
    Case("mood", "text", ("sad",)),
    Case("inet", "text", ("10.0.0.1",)),
    Case("integer[]", "bigint[]", ("{1,2}",)),
]


def column(connection: Connection) -> Column:
    return table_schema(connection, TableName("public", "t")).column("c")


def texts(connection: Connection) -> pa.StringArray:
    result = connection.pgconn.exec_params(b"SELECT c FROM t ORDER BY id", [], result_format=0)
    assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message
    found = [result.get_value(row, 0) for row in range(result.ntuples)]
    return pa.array([None if value is None else value.decode() for value in found], pa.string())


def filled(connection: Connection, type_: str, values: Sequence[str | None]) -> None:
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(f"CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, c {type_})")
    for value in (*values, None):
        given = sql.SQL("INSERT INTO t (c) VALUES ({}::text::{})").format(sql.Literal(value), sql.SQL(type_))
        connection.execute(given)


def prepare(connection: Connection) -> int:
    connection.execute("""
        SET timezone = 'UTC'; SET datestyle = ISO; SET intervalstyle = postgres;
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE DOMAIN price AS numeric(8,3);
        CREATE DOMAIN discounted AS price CHECK (VALUE > 0);
    """)
    return connection.info.server_version // 10_000


def test_rows_are_the_same_in_the_new_type(connection: Connection) -> None:
    version = prepare(connection)
    seen = set()
    for case in SAME_OR_WIDER:
        if case.since > version:
            continue
        values = [value for value in case.values if case.new != "discounted" or value != "0"]
        filled(connection, case.old, values)
        old, before = column(connection), texts(connection)
        connection.execute(f"ALTER TABLE t ALTER c TYPE {case.new}")
        new, after = column(connection), texts(connection)
        verdict = type_change(old, new)
        seen.add(verdict)
        assert verdict is not TypeChange.OTHER, case
        read, stored = (conversion_for(c.type, c.typmod) for c in (old, new))
        kept, expected = read.from_text(before), stored.from_text(after)
        # By repr: NaN equals NaN there, and -0 is not 0.
        assert repr(kept.values.cast(stored.arrow_type).to_pylist()) == repr(expected.values.to_pylist()), case
        assert (kept.rejected is None) == (expected.rejected is None), case
        if verdict is TypeChange.SAME:
            assert read.arrow_type == stored.arrow_type, case
            assert before.equals(after), case
    assert seen == {TypeChange.SAME, TypeChange.WIDER}


def test_what_is_not_provable_is_not_claimed(connection: Connection) -> None:
    prepare(connection)
    for case in OTHERS:
        filled(connection, case.old, case.values)
        old = column(connection)
        connection.execute(f"ALTER TABLE t ALTER c TYPE {case.new}")
        assert type_change(old, column(connection)) is TypeChange.OTHER, case


def test_labels_added_to_an_enum_leave_rows_as_they_are_and_renamed_ones_do_not(connection: Connection) -> None:
    prepare(connection)
    filled(connection, "mood", ["sad", "ok"])
    old, before = column(connection), texts(connection)
    connection.execute("ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok'")
    grown = column(connection)
    assert old.type.members == ("sad", "ok")
    assert (type_change(old, grown), texts(connection)) == (TypeChange.SAME, before)
    connection.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'x'")
    connection.execute("ALTER TYPE mood RENAME VALUE 'ok' TO 'sad'")
    connection.execute("ALTER TYPE mood RENAME VALUE 'x' TO 'ok'")
    assert texts(connection) != before
    assert type_change(grown, column(connection)) is TypeChange.OTHER


def test_a_composite_prints_its_attributes(connection: Connection) -> None:
    connection.execute("CREATE TYPE pair AS (x int, y text)")
    filled(connection, "pair", ["(1,a)"])
    old, before = column(connection), texts(connection)
    connection.execute("ALTER TYPE pair ADD ATTRIBUTE z int")
    assert texts(connection) != before
    assert type_change(old, column(connection)) is TypeChange.OTHER
