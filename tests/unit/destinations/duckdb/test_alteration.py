"""destinations.duckdb.alteration: statements that a real DuckDB takes, and the columns that they leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pytest

from headrace.destinations.change_log import BEFORE
from headrace.destinations.duckdb.alteration import Alteration, CannotAlter, altered_log, altered_table
from headrace.destinations.duckdb.columns import WantedColumn, quoted
from headrace.destinations.duckdb.record import RecordedColumn
from headrace.pgtypes.registry import builtin_type
from headrace.schema import Column

THERE = (RecordedColumn(1, "id", "BIGINT"), RecordedColumn(2, "a", "VARCHAR"), RecordedColumn(3, "b", "INTEGER"))


def wanted(*columns: tuple[int, str, str]) -> list[WantedColumn]:
    text = builtin_type(25)
    assert text is not None
    return [WantedColumn(Column(name, attnum, text), kind, name) for attnum, name, kind in columns]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def made(connection: duckdb.DuckDBPyConnection, columns: Sequence[RecordedColumn], *, log: bool) -> None:
    own = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
    connection.execute(f"CREATE OR REPLACE TABLE t ({own}{f', {BEFORE} STRUCT({own})' if log else ''})")
    values = [1, "x", 7]
    row = ", ".join("?" for _ in values)
    before = f", struct_pack({', '.join(f'{quoted(c.name)} := ?' for c in columns)})" if log else ""
    connection.execute(f"INSERT INTO t VALUES ({row}{before})", values * 2 if log else values)


def run(connection: duckdb.DuckDBPyConnection, altered: Alteration) -> dict[str, object]:
    connection.execute("BEGIN")
    for statement in altered.statements:
        connection.execute(f"ALTER TABLE t {statement}")
    if altered.filled:
        connection.execute(f"UPDATE t SET {', '.join(altered.filled)}")
    connection.execute("COMMIT")
    cursor = connection.execute("FROM t")
    names = [column[0] for column in cursor.description or ()]
    row = cursor.fetchone()
    assert row is not None
    return dict(zip(names, row, strict=True))


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ([(1, "id", "BIGINT"), (2, "a", "VARCHAR"), (3, "b", "INTEGER")], {"id": 1, "a": "x", "b": 7}),
        ([(1, "id", "BIGINT"), (2, "b", "VARCHAR"), (3, "a", "INTEGER")], {"id": 1, "b": "x", "a": 7}),
        ([(1, "a", "BIGINT"), (2, "b", "VARCHAR"), (3, "id", "INTEGER")], {"a": 1, "b": "x", "id": 7}),
        ([(1, "id", "BIGINT"), (2, "A", "VARCHAR"), (3, "b", "BIGINT")], {"id": 1, "A": "x", "b": 7}),
        ([(1, "id", "BIGINT"), (4, "a", "VARCHAR")], {"id": 1, "a": "new"}),
        ([(1, "B", "BIGINT"), (4, "id", "VARCHAR")], {"B": 1, "id": "new"}),
        ([(4, "a", "VARCHAR")], {"a": "new"}),
        ([(4, "only", "VARCHAR")], {"only": "new"}),
    ],
)
def test_a_table_comes_to_look_like_its_source(
    connection: duckdb.DuckDBPyConnection, columns: list[tuple[int, str, str]], row: dict[str, object]
) -> None:
    made(connection, THERE, log=False)
    altered = altered_table(THERE, wanted(*columns), lambda _: "'new'")
    assert run(connection, altered) == row
    assert altered.columns == tuple(RecordedColumn(*column) for column in columns)
    # Done again, it has nothing to do.
    assert altered_table(altered.columns, wanted(*columns), lambda _: None).statements == ()


def test_nested_columns_come_with_values_while_others_go(connection: duckdb.DuckDBPyConnection) -> None:
    made(connection, THERE, log=False)
    values = {"a": "[1, NULL]", "m": "MAP {'k': 2}", "s": "{'x': 3}", "n": "4"}
    kinds = {"a": "INTEGER[]", "m": "MAP(VARCHAR, INTEGER)", "s": "STRUCT(x INTEGER)", "n": "INTEGER"}
    columns = [(1, "id", "BIGINT"), *((attnum, name, kinds[name]) for attnum, name in enumerate(kinds, 4))]
    altered = altered_table(THERE, wanted(*columns), lambda column: values[column.name])
    assert run(connection, altered) == {"id": 1, "a": [1, None], "m": {"k": 2}, "s": {"x": 3}, "n": 4}


def test_columns_that_rows_are_found_by_stay_aside(connection: duckdb.DuckDBPyConnection) -> None:
    made(connection, THERE, log=False)
    altered = altered_table(THERE, wanted((2, "id", "VARCHAR")), lambda _: None, kept=[1])
    row = run(connection, altered)
    assert row["id"] == "x"
    (aside,) = (column for column in altered.columns if not column.live)
    assert (aside.attnum, row[aside.name], len(row)) == (1, 1, 2)


@pytest.mark.parametrize(
    "change", [(3, "b", "SMALLINT"), (3, "b", "VARCHAR"), (2, "a", "VARCHAR[]"), (1, "id", "DECIMAL(10, 2)")]
)
def test_what_cannot_be_altered(change: tuple[int, str, str]) -> None:
    with pytest.raises(CannotAlter, match=change[1]):
        altered_table(THERE, wanted(change), lambda _: None)


def test_a_log_keeps_every_column(connection: duckdb.DuckDBPyConnection) -> None:
    made(connection, THERE, log=True)
    # a is dropped and another a comes; b gets another type, then is widened, then called id
    altered = altered_log(THERE, wanted((1, "key", "BIGINT"), (3, "b", "VARCHAR"), (4, "a", "SMALLINT")))
    row = run(connection, altered)
    assert {name: value for name, value in row.items() if name != BEFORE} == {
        "key": 1, "a_2": "x", "b_3": 7, "b": None, "a": None
    }  # fmt: skip
    assert row[BEFORE] == {"key": 1, "a_2": "x", "b_3": 7, "b": None, "a": None}
    again = altered_log(altered.columns, wanted((1, "key", "BIGINT"), (3, "a", "VARCHAR"), (4, "b", "BIGINT")))
    row = run(connection, again)
    assert row[BEFORE] == {"key": 1, "a_2": "x", "b_3": 7, "a": None, "b": None}
    live = {(column.attnum, column.name, column.type) for column in again.columns if column.live}
    assert live == {(1, "key", "BIGINT"), (3, "a", "VARCHAR"), (4, "b", "BIGINT")}
    assert altered_log(again.columns, wanted(*live)).statements == ()
