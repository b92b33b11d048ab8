"""The setting `transform`: a Python function changes columns in the copy, in the stream and event by event, alike."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

import shop_transforms
from docs_blocks import blocks, write_modules
from headrace.config.destination import DestinationConfig
from headrace.destinations import MemoryDestination
from headrace.destinations.stdout import StdoutDestination
from headrace.errors import TableNotFound
from headrace.pipeline import PipelineState
from headrace.pipeline.build import build_destination
from headrace.stores import MemoryStore, SqliteStore
from headrace.table_state import State
from headrace.testing.canonical import canonical, canonical_text
from lakehouse import canonical_rows, read_table
from pipelining import Piped, destination_rows, piped, pipeline_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = """
    CREATE TABLE people (id bigint PRIMARY KEY, name text, email text, age int, region text, salary numeric(10,2),
        bio text, born date, seen timestamp, secret text);
    INSERT INTO people SELECT i, 'Person ' || i, 'P' || i || '@Example.ORG', i % 90, CASE i % 3 WHEN 0 THEN 'EU' END,
        i * 1.5, repeat(md5(i::text), 200), date '1980-01-01' + i, timestamp '2024-05-06 07:08:09.123456', 'hush'
        FROM generate_series(1, 1000) i;
    ALTER TABLE people ALTER bio SET STORAGE EXTERNAL;
    CREATE TABLE words (word text, n int);
    ALTER TABLE words REPLICA IDENTITY FULL;
    INSERT INTO words SELECT 'word ' || i % 5, i % 5 FROM generate_series(1, 20) i;
    CREATE PUBLICATION pub FOR TABLE people, words;
"""
# What the functions of shop_transforms come to, as Postgres has it.
EXPECTED = {
    "people": """SELECT id AS person, lower(email) AS email, left(name, 1) || '.' AS initial, age,
        concat_ws(' of ', name, region) AS known_as, (salary * 12)::numeric(12,2) AS yearly,
        extract(year FROM born)::int AS year, ARRAY[age, age] AS ages, born, seen, 'public.people' AS origin,
        length(bio) AS bio_length, bio FROM people""",
    "words": "SELECT upper(word) AS word, n, n * 2 AS twice FROM words",
}
TRANSFORMS = {
    "tables": {
        "public.people": {"columns": {"exclude": ["secret"]}, "transform": "shop_transforms:people"},
        "public.words": {"transform": "shop_transforms:keyless"},
    }
}
Reading = Callable[[str], list[str]]


def expected(connection: psycopg.Connection[Any], table: str) -> list[str]:
    with connection.cursor() as cursor:
        rows = cursor.execute(EXPECTED[table]).fetchall()
        names = [column.name for column in cursor.description or ()]
    return sorted(canonical_text(canonical(dict(zip(names, row, strict=True)))) for row in rows)


def change(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO people VALUES (5001, 'Zoë', 'Z@X', 1, 'EU', 2.5, 'short', NULL, NULL, 'hush')")
    # Large values that the updates do not touch are not sent.
    connection.execute("UPDATE people SET email = 'NEW@x', age = NULL WHERE id BETWEEN 10 AND 20")
    connection.execute("UPDATE people SET id = id + 7000 WHERE id BETWEEN 30 AND 35")
    connection.execute("UPDATE people SET bio = 'other' WHERE id = 40")
    connection.execute("DELETE FROM people WHERE id BETWEEN 50 AND 60")
    connection.execute("UPDATE words SET word = 'changed', n = n + 100 WHERE n = 3")
    connection.execute("DELETE FROM words WHERE ctid IN (SELECT ctid FROM words WHERE n = 1 LIMIT 2)")


def change_much(connection: psycopg.Connection[Any]) -> None:
    """More than the driver decodes by itself."""
    connection.execute(
        "INSERT INTO people SELECT i, 'Much ' || i, 'M@' || i, 7, 'US', 3, repeat(md5(i::text), 100), NULL, NULL, 'x' "
        "FROM generate_series(10001, 12500) i"
    )
    connection.execute("UPDATE people SET name = 'Many ' || id WHERE id > 11000")
    connection.execute("DELETE FROM people WHERE id > 12400")


def walk(connection: psycopg.Connection[Any], pipeline: Piped, read: Reading) -> None:
    def compare() -> None:
        for table in EXPECTED:
            assert read(table) == expected(connection, table)

    pipeline.until_ready()
    compare()
    for step in (change, change_much):
        step(connection)
        pipeline.until_applied(connection)
        compare()
    # A computed column has another type with it, so that the table is copied again; the other shows no new column.
    connection.execute("ALTER TABLE words ALTER n TYPE bigint; ALTER TABLE people ADD COLUMN more int DEFAULT 5")
    connection.execute("INSERT INTO words VALUES ('long', 5000000000)")
    connection.execute("UPDATE people SET more = 6, age = 3 WHERE id = 1")

    def copied_again() -> bool:
        # The memory destination has no table between two copies.
        with contextlib.suppress(TableNotFound):
            return read("words") == expected(connection, "words")
        return False

    pipeline.until(copied_again)
    pipeline.until_ready()
    pipeline.until_applied(connection)
    compare()


def test_tables_are_copied_and_streamed_through_a_function(
    conninfo: str, connection: psycopg.Connection[Any], spark: SparkSession, tmp_path: Path
) -> None:
    connection.execute(PEOPLE)
    config = pipeline_config(conninfo, tmp_path, transforms=TRANSFORMS)
    destination = MemoryDestination()
    with piped(config, MemoryStore(), destination, spark) as pipeline:
        walk(connection, pipeline, lambda table: destination_rows(destination, f"public.{table}"))


def test_and_into_iceberg(
    conninfo: str, connection: psycopg.Connection[Any], spark: SparkSession, tmp_path: Path
) -> None:
    connection.execute(PEOPLE)
    warehouse = tmp_path / "warehouse"
    destination = DestinationConfig.model_validate({"kind": "iceberg", "warehouse": str(warehouse)})
    config = pipeline_config(conninfo, tmp_path / "data", destination=destination, transforms=TRANSFORMS)

    def read(table: str) -> list[str]:
        found = canonical_rows(read_table(warehouse, f"public.{table}"))
        return sorted(canonical_text({name: row[name] for name in sorted(row)}) for row in found)

    with piped(config, MemoryStore(), build_destination(config), spark) as pipeline:
        walk(connection, pipeline, read)


def test_the_page(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection.execute(
        "CREATE TABLE customers (id int PRIMARY KEY, first_name text, last_name text, email text, birthday date, "
        "password_hash text); INSERT INTO customers VALUES (1, 'Ada', 'L', 'A@B', '1815-12-10', 'x'); "
        "CREATE TABLE notes (id int PRIMARY KEY, title text, body text); "
        "ALTER TABLE notes ALTER body SET STORAGE EXTERNAL; "
        "INSERT INTO notes VALUES (1, 'one', repeat('a b ', 2000)); "
        "CREATE PUBLICATION pub FOR TABLE customers, notes"
    )
    write_modules("docs/guides/transforms.md", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    settings = yaml.safe_load(blocks("docs/guides/transforms.md", "yaml")[1])
    settings["transforms"]["tables"]["public.notes"] = {"transform": "shop_notes:notes"}
    destination = MemoryDestination()
    with piped(pipeline_config(conninfo, tmp_path, **settings), MemoryStore(), destination, spark) as pipeline:
        pipeline.until_ready()
        connection.execute("INSERT INTO customers VALUES (2, 'Bo', 'M', 'C@D', NULL, 'y')")
        connection.execute("UPDATE notes SET title = 'two'")
        pipeline.until_applied(connection)
        found = sorted(destination.rows("public.customers").to_pylist(), key=lambda row: row["id"])
        notes = destination.rows("public.notes").to_pylist()
    assert found == [
        {"id": 1, "email": "a@b", "birthday": date(1815, 12, 10), "full_name": "Ada L"},
        {"id": 2, "email": "c@d", "birthday": None, "full_name": "Bo M"},
    ]
    # The body was not sent with the update: what is made of it stays.
    assert notes == [{"id": 1, "title": "two", "body": "a b " * 2000, "shout": "TWO", "words": 4000}]


def upper(column: str) -> Callable[[pa.RecordBatch, object], pa.RecordBatch]:
    return lambda batch, _: batch.set_column(1, column, pc.utf8_upper(batch[column]))


def test_a_column_that_the_function_names_is_renamed(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its table stops, and no other; with a function that knows the new name it is copied again."""
    connection.execute(
        "CREATE TABLE a (id int PRIMARY KEY, word text); CREATE TABLE b (id int PRIMARY KEY, word text); "
        "INSERT INTO a VALUES (1, 'one'); CREATE PUBLICATION pub FOR TABLE a, b"
    )
    monkeypatch.setattr(shop_transforms, "same", upper("word"))
    transforms = {"tables": {"public.a": {"transform": "shop_transforms:same"}}}
    config = pipeline_config(conninfo, tmp_path / "data", transforms=transforms)
    store, destination = SqliteStore(tmp_path / "store.db", config.id), MemoryDestination()
    with piped(config, store, destination, spark) as pipeline:
        pipeline.until_ready()
        connection.execute("INSERT INTO a VALUES (2, 'two'); ALTER TABLE a RENAME word TO term")
        connection.execute("INSERT INTO a VALUES (3, 'three'); INSERT INTO b VALUES (1, 'b')")
        pipeline.until(lambda: pipeline.states()["public.a"] is State.ERRORED)
        pipeline.until(lambda: destination.rows("public.b").num_rows == 1)
        reason = str(pipeline.status.tables["public.a"].state)
        assert "the transform shop_transforms:same of table public.a failed" in reason
    monkeypatch.setattr(shop_transforms, "same", upper("term"))
    with piped(config, store, destination, spark) as pipeline:
        pipeline.until(lambda: pipeline.status.state is PipelineState.RUNNING)
        pipeline.pipeline.resync("public.a")
        pipeline.until_ready()
        connection.execute("INSERT INTO a VALUES (4, 'four')")
        pipeline.until_applied(connection)
        found = sorted(destination.rows("public.a").to_pylist(), key=lambda row: row["id"])
    store.close()
    words = ["ONE", "TWO", "THREE", "FOUR"]
    assert found == [{"id": n, "term": word} for n, word in enumerate(words, 1)]


def test_events_pass_through_a_function(
    conninfo: str, connection: psycopg.Connection[Any], spark: SparkSession, tmp_path: Path
) -> None:
    connection.execute(
        "CREATE TABLE people (id int PRIMARY KEY, email text, note text, phone text, hint text); "
        "INSERT INTO people VALUES (1, 'a@b', 'copied', '1', 'x'); CREATE PUBLICATION pub FOR TABLE people"
    )
    settings = {"columns": {"exclude": ["phone", "hint"]}, "transform": "shop_transforms:shown"}
    config = pipeline_config(conninfo, tmp_path, transforms={"tables": {"public.people": settings}})
    stream = io.StringIO()
    with piped(config, MemoryStore(), StdoutDestination(stream), spark) as pipeline:
        pipeline.until_ready()
        connection.execute("INSERT INTO people VALUES (2, 'c@d', 'new', '2', 'y')")
        connection.execute("UPDATE people SET id = 3, note = NULL WHERE id = 1")
        connection.execute("DELETE FROM people WHERE id = 2")
        pipeline.until(lambda: stream.getvalue().count('"commit"') == 3)
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    events = [
        (e["kind"], e.get("row"), e.get("old")) for e in found if e["kind"] in ("row", "insert", "update", "delete")
    ]
    assert events == [
        ("row", {"id": 1, "email": "a@b", "note": "copied", "known_by": "a@b copied"}, None),
        ("insert", {"id": 2, "email": "c@d", "note": "new", "known_by": "c@d new"}, None),
        ("update", {"id": 3, "email": "a@b", "note": None, "known_by": "a@b"}, {"id": 1}),
        ("delete", None, {"id": 2}),
    ]


@pytest.mark.parametrize("rows", [10, 200_000], ids=["in the driver", "in tasks"])
def test_a_function_that_fails_stops_its_table(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    rows: int,
) -> None:
    connection.execute(
        "CREATE TABLE words (n int PRIMARY KEY, word text); INSERT INTO words VALUES (1, 'one'); "
        "CREATE TABLE b (n int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE words, b"
    )
    warehouse = tmp_path / "warehouse"
    config = pipeline_config(
        conninfo,
        tmp_path / "data",
        destination=DestinationConfig.model_validate({"kind": "iceberg", "warehouse": str(warehouse)}),
        transforms={"tables": {"public.words": {"transform": "shop_transforms:failing"}}},
    )
    with piped(config, MemoryStore(), build_destination(config), spark) as pipeline:
        pipeline.until_ready()
        connection.execute(
            "INSERT INTO words SELECT i, 'the secret ' || i || repeat('x', 20) FROM generate_series(101, %s + 100) i",
            (rows,),
        )
        connection.execute("INSERT INTO b VALUES (1)")
        pipeline.until(lambda: pipeline.states()["public.words"] is State.ERRORED)
        pipeline.until(lambda: read_table(warehouse, "public.b").num_rows == 1)
        state = pipeline.status.tables["public.words"].state
    assert read_table(warehouse, "public.words").to_pylist() == [{"n": 1, "word": "one", "length": 3}]
    assert "the transform shop_transforms:failing of table public.words failed" in str(state)
    assert "ValueError at shop_transforms.py:" in str(state)
    assert "the secret" not in str(state) + "".join(capfd.readouterr())
