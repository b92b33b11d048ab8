"""The proof sees every difference: it is no proof otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headrace.demo.lakehouses import LAKEHOUSES
from headrace.demo.proof import prove_table

FIELDS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("rate", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("sizes", pa.list_(pa.int32())),
        ("data", pa.string()),
        ("flag", pa.bool_()),
        ("weight", pa.float64()),
    ]
)


@pytest.fixture
def source(connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    connection.execute("""
        CREATE SCHEMA s;
        CREATE TABLE s."T" (id bigint PRIMARY KEY, name text, price numeric(10,2), rate numeric, at timestamptz,
                            tags text[], sizes int[], data jsonb, flag boolean, weight float8);
        INSERT INTO s."T" SELECT
            i, 'name ' || i, i / 4.0, i * 0.10, timestamptz '2025-01-01 00:00+00' + i * interval '1.5 s',
            ARRAY['a', 'b "c"', NULL, 'ü'], ARRAY[i, NULL], jsonb_build_object('k', i, 'a', '[1, 2]'::jsonb), i % 2 = 0,
            i / 3.0 FROM generate_series(1, 500) AS i;
        INSERT INTO s."T" (id, name, tags) VALUES
            (501, '', '{}'), (502, NULL, NULL), (503, E'two\nlines, "quoted"', '{}');
    """)
    return connection


@pytest.fixture
def rows(source: psycopg.Connection[Any]) -> pa.Table:
    """The rows as a lakehouse would have them, by way of Python's values."""
    fetched = source.execute(
        'SELECT id, name, price, rate::text, at, tags, sizes, data::text, flag, weight FROM s."T"'
    ).fetchall()
    return pa.Table.from_pylist([dict(zip(FIELDS.names, row, strict=True)) for row in fetched], schema=FIELDS)


def test_equal_tables_are_equal_in_any_order(source: psycopg.Connection[Any], rows: pa.Table) -> None:
    turned = rows.sort_by([("id", "descending")]).select(["name", "id", *FIELDS.names[2:]])
    proof = prove_table(source, lambda _: turned, "s.T")
    assert (proof.equal, proof.source_rows, proof.lakehouse_rows) == (True, 503, 503)


def changed(rows: pa.Table, column: str, of: int, value: Any) -> pa.Table:
    listed = rows.to_pylist()
    for row in listed:
        if row["id"] == of:
            row[column] = value
    return pa.Table.from_pylist(listed, schema=rows.schema)


@pytest.mark.parametrize(
    ("column", "of", "value"),
    [
        ("name", 7, "name 8"),
        ("name", 501, None),
        ("name", 502, ""),
        ("name", 503, "two lines"),
        ("rate", 10, "1.0"),
        ("at", 7, None),
        ("tags", 7, ["a", 'b "c"', "ü"]),
        ("tags", 501, None),
        ("tags", 502, []),
        ("sizes", 7, [7, 0]),
        ("data", 7, '{"a": [1, 2], "k": 8}'),
        ("flag", 8, False),
        ("weight", 1, 0.33333333),
    ],
)
def test_one_other_value_is_found(
    source: psycopg.Connection[Any], rows: pa.Table, column: str, of: int, value: Any
) -> None:
    other = changed(rows, column, of, value)
    proof = prove_table(source, lambda _: other, "s.T")
    assert not proof.equal
    assert (proof.only_in_source, proof.only_in_lakehouse, proof.keys) == (1, 1, (f"(id) = ({of})",))


def test_missing_and_doubled_rows_are_found(source: psycopg.Connection[Any], rows: pa.Table) -> None:
    missing = prove_table(source, lambda _: rows.slice(1), "s.T")
    assert (missing.only_in_source, missing.only_in_lakehouse, missing.keys) == (1, 0, ("(id) = (1)",))
    doubled = prove_table(source, lambda _: pa.concat_tables([rows, rows.slice(4, 1)]), "s.T")
    assert (doubled.only_in_source, doubled.only_in_lakehouse, doubled.keys) == (0, 1, ("(id) = (5)",))
    none = prove_table(source, lambda _: rows.slice(0, 0), "s.T")
    assert (none.only_in_source, len(none.keys)) == (503, 5)


def test_an_empty_source_is_compared_too(source: psycopg.Connection[Any], rows: pa.Table) -> None:
    source.execute('TRUNCATE s."T"')
    assert prove_table(source, lambda _: rows.slice(0, 0), "s.T").equal
    assert prove_table(source, lambda _: rows, "s.T").only_in_lakehouse == 503


def test_other_columns_are_found(source: psycopg.Connection[Any], rows: pa.Table) -> None:
    proof = prove_table(source, lambda _: rows.drop_columns(["at"]), "s.T")
    assert (proof.equal, proof.columns) == (False, "missing at")
    more = rows.append_column("more", pa.nulls(len(rows), pa.int32()))
    assert prove_table(source, lambda _: more, "s.T").columns == "extra more"


def test_a_lakehouse_is_read_by_pyiceberg(source: psycopg.Connection[Any], rows: pa.Table, tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog("headrace", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=warehouse.as_uri())
    read = LAKEHOUSES["iceberg"].reader(tmp_path)
    try:
        catalog.create_namespace("s")
        table = catalog.create_table("s.T", rows.schema)
        table.append(rows)
        assert prove_table(source, read, "s.T").equal
        table.delete("id = 9")
        assert prove_table(source, read, "s.T").keys == ("(id) = (9)",)
    finally:
        catalog.engine.dispose()


def test_a_duckdb_file_is_read_by_another_duckdb(
    source: psycopg.Connection[Any], rows: pa.Table, tmp_path: Path
) -> None:
    import duckdb

    with duckdb.connect(LAKEHOUSES["duckdb"].settings(tmp_path)["database"]) as engine:
        engine.execute("CREATE SCHEMA s")
        engine.register("rows", rows)
        engine.execute('CREATE TABLE s."T" AS SELECT * FROM rows')
    assert prove_table(source, LAKEHOUSES["duckdb"].reader(tmp_path), "s.T").equal
    with duckdb.connect(LAKEHOUSES["duckdb"].settings(tmp_path)["database"]) as engine:
        engine.execute('DELETE FROM s."T" WHERE id = 9')
    assert prove_table(source, LAKEHOUSES["duckdb"].reader(tmp_path), "s.T").keys == ("(id) = (9)",)


def test_delta_tables_are_read_by_duckdb(source: psycopg.Connection[Any], rows: pa.Table, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    place = f"{LAKEHOUSES['delta'].settings(tmp_path)['warehouse']}/s/T"
    Path(place).mkdir(parents=True)
    write_deltalake(place, rows)
    assert prove_table(source, LAKEHOUSES["delta"].reader(tmp_path), "s.T").equal
    DeltaTable(place).delete("id = 9")
    assert prove_table(source, LAKEHOUSES["delta"].reader(tmp_path), "s.T").keys == ("(id) = (9)",)
