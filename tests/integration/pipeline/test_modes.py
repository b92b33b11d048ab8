"""What a pipeline takes and how: its modes, the tables and rows that are wanted, and what it refuses to begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from failing import Failures
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.memory import MemoryDestination
from headrace.errors import (
    ConfigError,
    DestinationRejected,
    HeadraceError,
    PipelineError,
    PublicationNotFound,
    SourceSchemaError,
)
from headrace.pipeline import Pipeline, PipelineState
from headrace.pipeline.build import build_store
from headrace.postgres.slots import slot_state
from headrace.stores import MemoryStore
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import assert_equal_tables, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

A, B = "public.a", "public.b"


@pytest.fixture(autouse=True)
def tables(connection: Connection) -> None:
    for name in "ab":
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text, n int DEFAULT 0)")
        connection.execute(f"INSERT INTO {name} (note) SELECT 'copied' FROM generate_series(1, 20)")


@pytest.fixture
def publication(connection: Connection) -> None:
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")


@pytest.fixture
def durable(tmp_path: Path) -> DurableDestination:
    return DurableDestination(tmp_path / "destination.db")


def insert(connection: Connection, *tables: str) -> None:
    for table in tables or ("a", "b"):
        connection.execute(f"INSERT INTO {table} (note) VALUES ('streamed'), ('streamed')")


def ids(destination: Any, table: str) -> list[int]:
    return sorted(row["id"] for row in destination.rows(table))


@pytest.mark.usefixtures("publication")
def test_copy_only_ends_by_itself_and_leaves_no_slot(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, durable: DurableDestination
) -> None:
    config, store, failures = pipeline_config(conninfo, tmp_path, mode="copy_only"), MemoryStore(), Failures()
    destination = FaultyDestination(durable, failures)
    for _ in range(2):
        with Pipeline(config, store, destination, spark=spark) as pipeline:
            pipeline.start()
            assert pipeline.wait(60)
            assert pipeline.status.state is PipelineState.STOPPED
        assert_equal_tables(connection, durable, A, B)
        # The next time everything is copied anew.
        connection.execute("DELETE FROM a WHERE id < 5; INSERT INTO b (note) VALUES ('later')")
    failures.begin("write_table_rows", B, lambda: DestinationRejected("no such type", hint="give it one"))
    with Pipeline(config, store, destination, spark=spark) as pipeline:
        pipeline.start()
        with pytest.raises(PipelineError, match="1 of 2 tables were not copied") as caught:
            pipeline.wait(60)
    assert caught.value.detail == f"{B}: no such type"
    assert caught.value.hint == "give it one"
    assert_equal_tables(connection, durable, A)
    assert slot_state(connection, config.slot_name) is None


@pytest.mark.usefixtures("publication")
def test_stream_only_has_the_tables_and_no_rows_of_before(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, durable: DurableDestination
) -> None:
    config = pipeline_config(conninfo, tmp_path, mode="stream_only")
    with piped(config, MemoryStore(), durable, spark) as running:
        running.until_ready()
        assert durable.tables() == [A, B]
        assert (durable.rows(A), durable.rows(B)) == ([], [])
        insert(connection, "a")
        running.until_applied(connection)
    assert (ids(durable, A), ids(durable, B)) == ([21, 22], [])


LISTS = [
    pytest.param({"type": "include_tables", "tables": [A]}, {A}, id="include_tables"),
    pytest.param({"type": "skip_tables", "tables": [A]}, {B}, id="skip_tables", marks=pytest.mark.long),
    pytest.param({"type": "skip_all_tables"}, set(), id="skip_all_tables", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("choice", "copied"), LISTS)
@pytest.mark.usefixtures("publication")
def test_only_the_tables_that_are_wanted_are_copied(
    request: pytest.FixtureRequest, conninfo: str, connection: Connection, choice: dict[str, Any], copied: set[str]
) -> None:
    spark, durable, root = (request.getfixturevalue(name) for name in ("spark", "durable", "tmp_path"))
    with piped(pipeline_config(conninfo, root, table_sync_copy=choice), MemoryStore(), durable, spark) as running:
        running.until_ready()
        insert(connection)
        running.until_applied(connection)
    before = {A: list(range(1, 21)), B: list(range(1, 21))}
    for table in (A, B):
        assert ids(durable, table) == [*(before[table] if table in copied else []), 21, 22]


def test_column_lists_and_row_filters(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, durable: DurableDestination
) -> None:
    connection.execute("CREATE PUBLICATION pub FOR TABLE a (id, n), b WHERE (id % 2 = 0)")
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), durable, spark) as running:
        running.until_ready()
        assert len(durable.copied(B)) == 10
        insert(connection)
        connection.execute("UPDATE a SET n = id, note = 'unseen'; UPDATE b SET n = id")
        # Out of the filter, and into it.
        connection.execute("UPDATE b SET id = 1001 WHERE id = 2; UPDATE b SET id = 1002 WHERE id = 3")
        running.until_applied(connection)
    wanted = connection.execute("SELECT id, n FROM a ORDER BY id").fetchall()
    assert sorted((row["id"], row["n"]) for row in durable.rows(A)) == wanted
    assert set(durable.rows(A)[0]) == {"id", "n"}
    wanted = connection.execute("SELECT id, n FROM b WHERE id % 2 = 0 ORDER BY id").fetchall()
    assert sorted((row["id"], row["n"]) for row in durable.rows(B)) == wanted


def refusal(config: PipelineConfig, spark: Any) -> BaseException:
    with Pipeline(config, MemoryStore(), MemoryDestination(), spark=spark) as pipeline:
        pipeline.start()
        with pytest.raises(HeadraceError) as caught:
            pipeline.wait(60)
    return caught.value


def test_what_a_pipeline_does_not_begin_with(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    config = pipeline_config(conninfo, tmp_path)
    error = refusal(config, spark)
    assert isinstance(error, PublicationNotFound)
    assert "pub" in str(error)
    assert "CREATE PUBLICATION" in error.hint
    connection.execute("CREATE PUBLICATION pub")
    error = refusal(config, spark)
    assert isinstance(error, SourceSchemaError)
    assert "publication pub has no tables" in str(error)
    assert "ADD TABLE" in error.hint
    connection.execute("ALTER PUBLICATION pub ADD TABLE a")
    choice = {"type": "include_tables", "tables": [A, "public.typo"]}
    error = refusal(pipeline_config(conninfo, tmp_path, table_sync_copy=choice), spark)
    assert isinstance(error, ConfigError)
    assert "table_sync_copy.tables names public.typo" in str(error)
    # Nothing was made on the source.
    assert slot_state(connection, config.slot_name) is None


@pytest.mark.usefixtures("publication")
def test_tables_that_join_and_leave_the_publication(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, durable: DurableDestination
) -> None:
    config, store = pipeline_config(conninfo, tmp_path), MemoryStore()
    with piped(config, store, durable, spark) as running:
        running.until_ready()
    connection.execute("CREATE TABLE late (id int PRIMARY KEY, note text); INSERT INTO late VALUES (1, 'copied')")
    connection.execute("ALTER PUBLICATION pub ADD TABLE late; ALTER PUBLICATION pub DROP TABLE b")
    insert(connection, "a")
    with piped(config, store, durable, spark) as running:
        running.until(lambda: sorted(running.states()) == [A, "public.late"])
        running.until_ready()
        connection.execute("INSERT INTO late VALUES (2, 'streamed')")
        wait_equal(running, connection, durable, A, "public.late")
    assert len(store.get_table_states()) == 2
    assert len(durable.rows(B)) == 20


@pytest.fixture
def in_source(conninfo: str, tmp_path: Path) -> Iterator[tuple[PipelineConfig, Any]]:
    config = pipeline_config(conninfo, tmp_path, store={"kind": "postgres"})
    store = build_store(config)
    yield config, store
    store.close()


def test_a_store_in_a_source_whose_tables_are_all_published(
    connection: Connection,
    spark: Any,
    durable: DurableDestination,
    in_source: tuple[PipelineConfig, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, store = in_source
    connection.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    stored: list[Any] = []
    inner = store.update_progress
    monkeypatch.setattr(store, "update_progress", lambda worker, lsn: stored.append(lsn) or inner(worker, lsn))
    with piped(config, store, durable, spark) as running:
        running.until_ready()
        insert(connection)
        wait_equal(running, connection, durable, A, B)
        assert sorted(running.states()) == [A, B]
        # What the pipeline itself stores is WAL too; it must not keep the pipeline storing.
        before = len(stored)
        for _ in range(10):
            connection.execute("SELECT pg_logical_emit_message(false, 'test', 'so that WAL goes on')")
            running.until_applied(connection)
        assert len(stored) - before <= 1
        assert before < 30
    assert durable.tables() == [A, B]
