"""destinations.duckdb.columns: the SQL type of every Arrow type there is, and names that DuckDB tells apart."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from headrace.destinations.duckdb.columns import column_names, sql_type, widens
from headrace.testing.example_tables import example_table

TYPES = {
    pa.bool_(): True,
    pa.int16(): -(2**15),
    pa.int32(): 2**31 - 1,
    pa.int64(): -(2**63),
    pa.float32(): 0.5,
    pa.float64(): 1e300,
    pa.string(): "ä\n'",
    pa.binary(): b"\x00\xff",
    pa.date32(): 19_000,
    pa.timestamp("us"): -1,
    pa.timestamp("us", "UTC"): 1_700_000_000_123_456,
    pa.decimal128(38, 10): None,
    pa.list_(pa.string()): ["", None],
    pa.map_(pa.string(), pa.string()): [("a", "b"), ("c", None)],
    pa.struct([("Größe \"x\"", pa.int32())]): {"Größe \"x\"": 1},
}  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_comes_back_as_it_was(kind: pa.DataType) -> None:
    given = pa.table({"v": pa.array([TYPES[kind], None], kind)})
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE t (v {sql_type(kind)})")
        connection.register("given", given)
        connection.execute("INSERT INTO t SELECT v FROM given")
        assert connection.execute("FROM t").to_arrow_table()["v"].to_pylist() == given["v"].to_pylist()
        connection.unregister("given")


@pytest.mark.parametrize(
    ("old", "new", "can"),
    [
        ("SMALLINT", "BIGINT", True),
        ("BIGINT", "INTEGER", False),
        ("FLOAT", "DOUBLE", True),
        ("DECIMAL(10, 2)", "DECIMAL(38, 2)", True),
        ("DECIMAL(10, 2)", "DECIMAL(12, 4)", False),
        ("DECIMAL(12, 2)", "DECIMAL(10, 2)", False),
        ("INTEGER", "DECIMAL(10, 2)", False),
        ("VARCHAR", "BLOB", False),
    ],
)
def test_types_that_widen(old: str, new: str, can: bool) -> None:
    assert widens(old, new) is can


def test_names_that_differ_in_case_only_are_told_apart() -> None:
    names = ("id", "name", "Name", "NAME", "name_3", "other")
    table = example_table(1, "t", dict.fromkeys(names, "text"))
    assert column_names(table) == {
        "id": "id", "name": "name", "Name": "Name_3_", "NAME": "NAME_4", "name_3": "name_3", "other": "other"
    }  # fmt: skip
