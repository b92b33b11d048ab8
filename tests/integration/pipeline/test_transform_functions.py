"""The setting `transform`: a Python function changes columns in the copy, in the stream and event by event, alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import yaml
from pyspark.sql import functions as sf

import shop_transforms
from docs_blocks import blocks, write_modules
from headrace.config.destination import DestinationConfig
from headrace.config.transforms import TransformsConfig
from headrace.destinations import MemoryDestination
from headrace.destinations.batch import Changes
from headrace.destinations.contract import Destination, DestinationContext
from headrace.destinations.transforms import transformed
from headrace.errors import ConfigError, DestinationRejected, TableNotFound
from headrace.events import UNCHANGED, Delete, Insert, Relation, Update
from headrace.lsn import Lsn
from headrace.pipeline import PipelineState
from headrace.pipeline.build import build_destination
from headrace.schema import ReplicaIdentity, ReplicatedTableSchema
from headrace.stores import MemoryStore, SqliteStore
from headrace.table_state import State
from headrace.testing.canonical import canonical, canonical_text
from headrace.testing.example_tables import altered_table, example_column, example_table
from headrace.testing.local_rows import Deleted, Inserted, Updated, batch_of, local_rows, transaction
from lakehouse import canonical_rows, read_table
from pipelining import Piped, destination_rows, piped, pipeline_config

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        extract(year FROM born)::int AS year, ARRAY[age, age] AS ages, length(bio) AS bio_length, bio, born, seen,
        'public.people' AS origin FROM people""",
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
        "CREATE PUBLICATION pub FOR TABLE customers"
    )
    write_modules("docs/guides/transforms.md", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    settings = yaml.safe_load(blocks("docs/guides/transforms.md", "yaml")[1])
    destination = MemoryDestination()
    with piped(pipeline_config(conninfo, tmp_path, **settings), MemoryStore(), destination, spark) as pipeline:
        pipeline.until_ready()
        connection.execute("INSERT INTO customers VALUES (2, 'Bo', 'M', 'C@D', NULL, 'y')")
        pipeline.until_applied(connection)
        found = sorted(destination.rows("public.customers").to_pylist(), key=lambda row: row["id"])
    assert found == [
        {"id": 1, "email": "a@b", "born": date(1815, 12, 10), "full_name": "Ada L"},
        {"id": 2, "email": "c@d", "born": None, "full_name": "Bo M"},
    ]


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
    monkeypatch.setattr(shop_transforms, "same", lambda df, _: df.withColumn("word", sf.upper("word")))
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
        assert "the transform of table public.a failed" in reason
    monkeypatch.setattr(shop_transforms, "same", lambda df, _: df.withColumn("term", sf.upper("term")))
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


NOTES = example_table(16_950, "notes", {"id": "int8", "head": "text", "body": "text", "map": "hstore"}, ("id",))
WHOLE = example_table(
    16_951, "whole", {"id": "int8", "head": "text", "body": "text"}, ("id",), identity=ReplicaIdentity.FULL
)


class Recorder(MemoryDestination):
    """Keeps the changes that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[dict[str, Any]] = []

    def write_events(self, batch: Any) -> Any:
        steps = [step for table in batch.tables for step in table.steps if isinstance(step, Changes)]
        self.changes += [row for step in steps for some in step.rows.batches() for row in some.to_pylist()]
        return super().write_events(batch)


Made = tuple[Destination, Recorder]


@pytest.fixture
def made(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    """A destination behind a function, open."""

    def make(function: Callable[[Any, Any], Any], *tables: ReplicatedTableSchema) -> Made:
        monkeypatch.setattr(shop_transforms, "same", function)
        inner = Recorder()
        settings = {str(table.table.name): {"transform": "shop_transforms:same"} for table in tables}
        outer = transformed(inner, TransformsConfig.model_validate({"tables": settings}))
        outer.startup(DestinationContext(1, MemoryStore(), spark, tables))
        return outer, inner

    return make


def note(key: int, head: str = "h", body: Any = "b") -> dict[str, Any]:
    return {"id": key, "head": head, "body": body, "map": {"k": "v"}}


def write(outer: Destination, spark: SparkSession, *happenings: Any) -> None:
    batch = batch_of(transaction(Lsn(100), *happenings), end=Lsn(200))
    tables = tuple(
        replace(table, steps=tuple(with_spark(step, spark) for step in table.steps)) for table in batch.tables
    )
    outer.write_events(replace(batch, tables=tables))


def with_spark(step: Any, spark: SparkSession) -> Any:
    return replace(step, rows=replace(step.rows, spark=spark)) if isinstance(step, Changes) else step


def reworked(df: DataFrame, _: object) -> DataFrame:
    return df.select("map", sf.length("body").alias("size"), sf.upper("body").alias("body"), "id")


def test_changes_and_events_say_the_same(made: Callable[..., Made], spark: SparkSession) -> None:
    outer, inner = made(reworked, NOTES)
    outer.write_table_rows(NOTES, replace(local_rows(NOTES, [note(1), note(2), note(3)]), spark=spark), 0)
    write(
        outer, spark,
        Inserted(NOTES, note(4, body="ü")), Updated(NOTES, note(1, body=UNCHANGED)),
        Updated(NOTES, note(20, body="long"), old={"id": 2}), Deleted(NOTES, {"id": 3}),
    )  # fmt: skip
    shown = {"map": {"k": "v"}}
    assert sorted(inner.rows(NOTES.table.name).to_pylist(maps_as_pydicts="strict"), key=lambda row: row["id"]) == [
        {**shown, "size": 1, "body": "B", "id": 1},
        {**shown, "size": 1, "body": "Ü", "id": 4},
        {**shown, "size": 4, "body": "LONG", "id": 20},
    ]
    # Both columns that are made of the one that was not sent stay as they are.
    assert [change["unchanged"] for change in inner.changes] == [None, [1, 2], None, None]
    nothing = dict.fromkeys(("map", "size", "body"))
    assert [change["old"] for change in inner.changes] == [None, None, {**nothing, "id": 2}, {**nothing, "id": 3}]
    events = [event for event in inner.events() if isinstance(event, Insert | Update | Delete)]
    assert [event.row for event in events if isinstance(event, Insert | Update)] == [
        {**shown, "size": 1, "body": "Ü", "id": 4},
        {**shown, "size": UNCHANGED, "body": UNCHANGED, "id": 1},
        {**shown, "size": 4, "body": "LONG", "id": 20},
    ]
    assert [event.old for event in events if isinstance(event, Update | Delete)] == [None, {"id": 2}, {"id": 3}]
    assert {event.schema for event in events} == {events[0].schema}
    assert [column.name for column in events[0].schema.columns] == ["map", "size", "body", "id"]


def test_whole_old_rows_pass_through_too(made: Callable[..., Made], spark: SparkSession) -> None:
    outer, inner = made(lambda df, _: df.withColumn("head", sf.upper("head")).drop("body"), WHOLE)
    old, new = {"id": 1, "head": "a", "body": "x"}, {"id": 1, "head": "b", "body": "x"}
    outer.write_table_rows(WHOLE, replace(local_rows(WHOLE, [old]), spark=spark), 0)
    write(outer, spark, Updated(WHOLE, new, old=old))
    assert [(c["row"], c["old"]) for c in inner.changes] == [({"id": 1, "head": "B"}, {"id": 1, "head": "A"})]
    (event,) = (event for event in inner.events() if isinstance(event, Update))
    assert (event.row, event.old) == ({"id": 1, "head": "B"}, {"id": 1, "head": "A"})
    assert inner.rows(WHOLE.table.name).to_pylist() == [{"id": 1, "head": "B"}]


def test_a_column_of_several_of_which_one_was_not_sent(made: Callable[..., Made], spark: SparkSession) -> None:
    outer, _ = made(lambda df, _: df.withColumn("all", sf.concat("head", "body")), NOTES)
    write(outer, spark, Inserted(NOTES, note(1)))
    with pytest.raises(DestinationRejected, match="TOASTed value") as caught:
        write(outer, spark, Updated(NOTES, note(1, body=UNCHANGED)))
    assert 'ALTER TABLE "public"."notes" REPLICA IDENTITY FULL' in caught.value.hint


def test_values_set_aside_are_those_of_columns_that_stay(made: Callable[..., Made], spark: SparkSession) -> None:
    dated = example_table(16_952, "dated", {"id": "int8", "day": "date", "other": "date", "hidden": "date"}, ("id",))
    outer, inner = made(
        lambda df, _: df.withColumnRenamed("day", "date").withColumn("other", sf.year("other")).drop("hidden"), dated
    )
    rejected = [{"key": '{"id":"1"}', "column": c, "text": "infinity"} for c in ("day", "other", "hidden")]
    rows = local_rows(dated, [{"id": 1, "day": None, "other": None, "hidden": None}], rejected=rejected)
    outer.write_table_rows(dated, replace(rows, spark=spark), 0)
    assert [row["column"] for row in inner.quarantine(dated.table.name).to_pylist()] == ["date"]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda df, _: df.filter("id > 1"), "not row by row: it does more than select columns: Filter"),
        (lambda df, _: df.groupBy("id").count(), "not row by row: it does more than select columns: Aggregate"),
        (lambda df, _: df.limit(1), "not row by row"),
        (lambda df, _: df.withColumn("r", sf.rand()), "column r has another value each time"),
        (lambda df, _: df.withColumn("q", sf.expr("(SELECT max(id) FROM range(3))")), "column q asks another table"),
        (lambda df, _: df.sparkSession.range(3), "not row by row"),
        (lambda df, _: df.drop("id"), "changes or drops id, which is part of its key"),
        (lambda df, _: df.withColumn("id", sf.col("id") + 1), "changes or drops id"),
        (lambda df, _: df.withColumn("s", sf.struct("id")), "gives column s the type struct"),
        (lambda df, _: df.withColumn("_headrace_op", sf.lit(1)), "gives a column the name _headrace_op"),
        (lambda df, _: df.select("*", sf.lit(1).alias("id")), "gives two columns the name id"),
        (lambda df, _: df.select("nowhere"), "public.notes failed"),
        (lambda df, _: df.schema, "gives StructType, not a DataFrame"),
        (lambda df: df, "public.notes failed"),
    ],
)  # fmt: skip
def test_what_a_function_may_not_do(made: Callable[..., Made], function: Callable[..., Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        made(function, NOTES)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("no_such_module:f", "no_such_module:f cannot be imported"),
        ("shop_transforms:nothing", "the module shop_transforms has no function nothing"),
    ],
)
def test_a_function_that_is_not_there(reference: str, told: str) -> None:
    config = TransformsConfig.model_validate({"tables": {"public.notes": {"transform": reference}}})
    with pytest.raises(ConfigError, match=told):
        transformed(MemoryDestination(), config)


def test_a_function_that_changes_its_mind(made: Callable[..., Made], spark: SparkSession) -> None:
    calls: list[Sequence[str]] = []

    def moody(df: DataFrame, _: object) -> DataFrame:
        calls.append(df.columns)
        return df if len(calls) == 1 else df.filter("id > 1")

    outer, inner = made(moody, NOTES)
    for attempt in (
        lambda: outer.write_table_rows(NOTES, replace(local_rows(NOTES, [note(1)]), spark=spark), 0),
        lambda: write(outer, spark, Inserted(NOTES, note(1))),
    ):
        with pytest.raises(DestinationRejected, match="something else than it did with no rows"):
            attempt()
    assert inner.tables() == []


def test_which_changes_of_the_table_can_be_followed(made: Callable[..., Made]) -> None:
    outer, _ = made(lambda df, _: df.withColumn("size", sf.length("body")), NOTES)
    columns = {column.name: column for column in NOTES.columns}

    def follows(*changed: Any) -> bool:
        new = altered_table(NOTES, *changed)
        return outer.follows(Relation(Lsn(1), Lsn(1), NOTES, new))

    assert follows(*columns.values(), example_column("more", 5, "int4"))
    assert follows(*(replace(c, name="title") if c.name == "head" else c for c in columns.values()))
    # Another column under the old name: what was computed from the one before is not what it comes to now.
    again = example_column("body", 6, "text")
    assert not follows(columns["id"], columns["head"], columns["map"], again)
