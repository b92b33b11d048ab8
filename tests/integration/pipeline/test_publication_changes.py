"""A publication that changes while the pipeline runs: tables come and go, and the publication itself is dropped and
created again. `test_partition_changes` has what happens to partitions, `test_selective_publications` column lists."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from changing_publication import Changing, changing, create, write
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.memory import MemoryDestination
from headrace.errors import DestinationError, DestinationRejected, PublicationNotFound, RetryPolicy
from headrace.lsn import INVALID_LSN
from headrace.pipeline import Pipeline, PipelineState, discovery
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.faulty_destination import FaultyDestination
from headrace.testing.postgres import PostgresServer
from pipelining import destination_rows, piped, pipeline_config, source_rows, until_equal, wait_equal

Connection = psycopg.Connection[Any]

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module", autouse=True)
def looks_are_quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "INTERVAL_S", 0.5)
        yield


@pytest.fixture(scope="module")
def listed(postgres: PostgresServer, spark: Any, tmp_path_factory: Any) -> Iterator[Changing]:
    """A publication that names its tables, without the event trigger: the catalog is all there is to look at."""
    names = ("busy", "gone", "back", "flicker", "replaced", "late", "added", "inserts")
    published = ", ".join(name for name in names if name not in ("late", "added"))
    root = Path(tmp_path_factory.mktemp("listed"))
    with (
        postgres.database() as conninfo,
        changing(conninfo, root, spark, f"TABLE {published}", names) as pipeline,
    ):
        yield pipeline


def test_a_table_that_is_added(listed: Changing) -> None:
    write(listed.connection, "busy", "added")
    listed.execute("ALTER PUBLICATION pub ADD TABLE added")
    write(listed.connection, "busy", "added")
    listed.until_same("public.added")
    write(listed.connection, "busy", "added")
    listed.until_same("public.added")
    listed.until_same("public.busy")
    assert listed.copies("busy") == 1


def test_a_table_that_is_removed(listed: Changing) -> None:
    oid = listed.oid("gone")
    write(listed.connection, "gone")
    before = source_rows(listed.connection, "gone")
    listed.execute("ALTER PUBLICATION pub DROP TABLE gone")
    # Nothing follows: the position of the removal is passed without a change.
    listed.until_left("public.gone")
    write(listed.connection, "gone", "busy")
    listed.until_same("public.busy")
    assert oid not in listed.store.get_table_states()
    assert listed.store.get_table_state_history(oid) == []
    assert destination_rows(listed.destination, "public.gone") == before


def test_a_table_that_comes_back(listed: Changing) -> None:
    listed.execute("ALTER PUBLICATION pub DROP TABLE back")
    listed.until_left("public.back")
    write(listed.connection, "back")
    listed.execute("ALTER PUBLICATION pub ADD TABLE back")
    write(listed.connection, "back")
    listed.until_same("public.back")


def test_a_table_that_was_away_between_two_looks(listed: Changing) -> None:
    listed.execute("ALTER PUBLICATION pub DROP TABLE flicker")
    write(listed.connection, "flicker")
    listed.execute("ALTER PUBLICATION pub ADD TABLE flicker")
    write(listed.connection, "flicker")
    listed.until_same("public.flicker")


def test_set_table(listed: Changing) -> None:
    create(listed.connection, "replacement")
    published = [name for (name,) in listed.connection.execute("SELECT tablename FROM pg_publication_tables")]
    rest = ", ".join(name for name in published if name != "replaced")
    listed.execute(f"ALTER PUBLICATION pub SET TABLE {rest}, replacement")
    write(listed.connection, "replacement", "replaced", "busy")
    listed.until_same("public.replacement")
    listed.until_left("public.replaced")
    listed.until_same("public.busy")
    assert listed.copies("busy") == 1


def test_a_transaction_that_wrote_before_the_table_was_published(listed: Changing) -> None:
    others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(listed.conninfo) as writer:
        writer.execute("INSERT INTO late VALUES (101, 'before it was published')")
        # Nobody else writes to it: the server would know by then that it is published, and send it all.
        listed.execute("ALTER PUBLICATION pub ADD TABLE late")
        listed.until_joined("public.late")

        def copied_or_waiting() -> bool:
            asked = listed.connection.execute(f"{others} AND query ~ 'virtualtransaction'").fetchone()
            return asked is not None or listed.running.states()["public.late"] is State.READY

        listed.running.until(copied_or_waiting)
        writer.execute("INSERT INTO late VALUES (102, 'after it was published')")
        writer.commit()
    listed.until_same("public.late")
    write(listed.connection, "late")
    listed.until_same("public.late")


def test_what_a_publication_sends_of_its_tables(listed: Changing) -> None:
    """`publish` leaves out deletes for a while: what was deleted meanwhile is found."""
    listed.execute("ALTER PUBLICATION pub SET (publish = 'insert')")
    listed.execute("DELETE FROM inserts WHERE id < 5")
    listed.execute("ALTER PUBLICATION pub SET (publish = 'insert, update, delete, truncate')")
    write(listed.connection, "inserts")
    listed.until_same("public.inserts")


def test_new_tables_where_all_are_published(conninfo: str, spark: Any, tmp_path: Path) -> None:
    """Many at once, while another streams; one is dropped, one is dropped and created again."""
    with changing(conninfo, tmp_path, spark, "ALL TABLES", ("busy", "dropped", "anew")) as pipeline:
        names = [f"new{number}" for number in range(40)]
        create(pipeline.connection, *names)
        write(pipeline.connection, "busy", "dropped", "anew", *names[:5])
        pipeline.execute("DROP TABLE dropped", "DROP TABLE anew")
        create(pipeline.connection, "anew")
        for table in ("busy", "anew", *names):
            pipeline.until_same(f"public.{table}")
        pipeline.until_left("public.dropped")
        write(pipeline.connection, "busy", "anew", *names)
        wait_equal(pipeline.running, pipeline.connection, pipeline.destination, "public.busy", "public.anew")
        assert pipeline.copies("busy") == 1


@pytest.mark.parametrize("writes", [True, False], ids=["with writes", "without writes"])
def test_a_publication_dropped_and_created_again(conninfo: str, spark: Any, tmp_path: Path, writes: bool) -> None:
    """Up to Postgres 17 the server refuses to decode what was written without it; from 18 on it sends nothing."""
    with capture_logs() as logs, changing(conninfo, tmp_path, spark, "TABLE a, b", ("a", "b")) as pipeline:
        pipeline.execute("DROP PUBLICATION pub")
        if writes:
            write(pipeline.connection, "a")
        pipeline.running.until(lambda: any("publication is gone" in entry["event"] for entry in logs))
        gone = next(entry for entry in logs if "publication is gone" in entry["event"])
        assert "publication pub does not exist" in gone["error"]
        assert pipeline.running.status.state is PipelineState.WAITING
        write(pipeline.connection, "a", "b")
        # At first without a table, as whoever makes it by hand may do.
        pipeline.execute("CREATE PUBLICATION pub")
        write(pipeline.connection, "a", "b")
        pipeline.execute("ALTER PUBLICATION pub ADD TABLE a, b")
        # Twice, where the new entries are seen before the receiver meets what was written without them.
        pipeline.until_same("public.a")
        pipeline.until_same("public.b")
        write(pipeline.connection, "a", "b")
        pipeline.until_same("public.a")
        pipeline.until_same("public.b")
        assert pipeline.running.status.state is PipelineState.RUNNING


def test_a_publication_away_between_two_looks(conninfo: str, spark: Any, tmp_path: Path) -> None:
    with changing(conninfo, tmp_path, spark, "TABLE a, b", ("a", "b")) as pipeline:
        pipeline.execute("DROP PUBLICATION pub")
        write(pipeline.connection, "a")
        pipeline.execute("CREATE PUBLICATION pub FOR TABLE a, b")
        write(pipeline.connection, "a", "b")
        # Twice, where the new entries are seen before the receiver meets what was written without them.
        pipeline.until_same("public.a")
        pipeline.until_same("public.b")
        write(pipeline.connection, "a", "b")
        pipeline.until_same("public.a")
        pipeline.until_same("public.b")


def test_a_publication_created_again_while_the_pipeline_was_stopped(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create(connection, "a", "b")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    config, store, destination = pipeline_config(conninfo, tmp_path), MemoryStore(), MemoryDestination()
    with piped(config, store, destination, spark) as running:
        running.until_ready()
    connection.execute("DROP PUBLICATION pub")
    write(connection, "a", "b")
    with Pipeline(config, store, destination, spark=spark) as pipeline:
        pipeline.start()
        with pytest.raises(PublicationNotFound, match='publication "pub" does not exist') as caught:
            pipeline.wait(60)
    assert "CREATE PUBLICATION" in str(caught.value.hint)
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    write(connection, "b")
    with piped(config, store, destination, spark) as running:
        changed = Changing(conninfo, connection, destination, store, running)
        changed.until_same("public.a")
        changed.until_same("public.b")
        write(connection, "a", "b")
        changed.until_same("public.a")
        changed.until_same("public.b")


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_on_table_removed(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, choice: str, stopped: bool
) -> None:
    """Everything before the removal is applied first, also when it comes to light at the next start."""
    create(connection, "a", "b")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    config = pipeline_config(conninfo, tmp_path, on_table_removed=choice, source={"install": "never"})
    store, destination = MemoryStore(), MemoryDestination()
    before: list[str] = []

    def remove() -> None:
        write(connection, "a", "b")
        before.extend(source_rows(connection, "b"))
        connection.execute("ALTER PUBLICATION pub DROP TABLE b")
        write(connection, "a", "b")

    with piped(config, store, destination, spark) as running:
        running.until_ready()
        if not stopped:
            remove()
            running.until(lambda: list(running.status.tables) == ["public.a"])
    if stopped:
        remove()
        with piped(config, store, destination, spark) as running:
            running.until(lambda: len(store.get_table_states()) == 1)
            wait_equal(running, connection, destination, "public.a")
    assert len(store.get_table_states()) == 1
    if choice == "keep":
        assert destination_rows(destination, "public.b") == before
    else:
        assert [str(name) for name in destination.tables()] == ["public.a"]


def test_a_table_that_cannot_be_removed_is_tried_again_and_holds_nothing(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create(connection, "a", "b")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    config = pipeline_config(conninfo, tmp_path, on_table_removed="drop", source={"install": "never"})
    errors: list[Exception] = [
        DestinationRejected("it is in use"),
        RuntimeError("a bug"),
        DestinationError("no answer"),
    ]
    refused, asked = threading.Event(), []
    refused.set()

    def fail(method: str, table: str | None) -> None:
        if (method, table) == ("drop_table", "public.b") and refused.is_set():
            asked.append(table)
            raise errors[len(asked) % len(errors)]

    inner, store = MemoryDestination(), MemoryStore()
    with piped(config, store, FaultyDestination(inner, fail), spark) as running:
        running.until_ready()
        write(connection, "a", "b")
        connection.execute("ALTER PUBLICATION pub DROP TABLE b")
        running.until(lambda: len(asked) > len(errors))
        # Others go on, and what is in the spool is kept for them alone.
        write(connection, "a", "b")
        running.until(lambda: source_rows(connection, "public.a") == destination_rows(inner, "public.a"))
        assert running.status.tables["public.b"].position == INVALID_LSN
        refused.clear()
        running.until(lambda: list(running.status.tables) == ["public.a"])
    assert [str(name) for name in inner.tables()] == ["public.a"]
    assert len(store.get_table_states()) == 1


def test_a_table_that_cannot_be_removed_may_come_back(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create(connection, "a", "b")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    config = pipeline_config(conninfo, tmp_path, on_table_removed="drop", source={"install": "never"})
    asked = threading.Event()

    def fail(method: str, table: str | None) -> None:
        if method == "drop_table":
            asked.set()
            msg = f"{table} is in use"
            raise DestinationError(msg)

    inner = MemoryDestination()
    with piped(config, MemoryStore(), FaultyDestination(inner, fail), spark) as running:
        running.until_ready()
        connection.execute("ALTER PUBLICATION pub DROP TABLE b")
        running.until(asked.is_set)
        write(connection, "b")
        connection.execute("ALTER PUBLICATION pub ADD TABLE b")
        until_equal(running, connection, inner, "public.b")
        running.until_ready()
        write(connection, "a", "b")
        wait_equal(running, connection, inner, "public.a", "public.b")


def test_a_table_that_comes_back_while_it_is_removed_is_copied_anew(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create(connection, "a", "b")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    config = pipeline_config(conninfo, tmp_path, on_table_removed="drop", source={"install": "never"})
    asked, back = threading.Event(), threading.Event()

    def wait(method: str, table: str | None) -> None:
        if method == "drop_table":
            asked.set()
            assert back.wait(60), f"{table} did not come back"

    inner = MemoryDestination()
    with piped(config, MemoryStore(), FaultyDestination(inner, wait), spark) as running:
        running.until_ready()
        connection.execute("ALTER PUBLICATION pub DROP TABLE b")
        running.until(asked.is_set)
        connection.execute("ALTER PUBLICATION pub ADD TABLE b")
        # A table that joins is seen in the same look, or a later one.
        create(connection, "c")
        connection.execute("ALTER PUBLICATION pub ADD TABLE c")
        running.until(lambda: "public.c" in running.status.tables)
        back.set()
        write(connection, "a", "b")
        until_equal(running, connection, inner, "public.b")
        running.until_ready()
        wait_equal(running, connection, inner, "public.a", "public.b")


def test_only_the_table_that_cannot_be_copied_fails(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    """Not allowed to be read; refused by the destination; without a replica identity, which only inserts can do."""
    login = psycopg.conninfo.conninfo_to_dict(conninfo)
    role = f"reader_{login['dbname']}"
    connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{login['password']}'")
    create(connection, "busy", "secret", "taken", "keyless")
    connection.execute("ALTER TABLE keyless DROP CONSTRAINT keyless_pkey")
    connection.execute(f"GRANT SELECT ON busy, taken, keyless TO {role}")
    connection.execute("CREATE PUBLICATION pub FOR TABLE busy")

    def fail(method: str, table: str | None) -> None:
        if method == "write_table_rows" and table == "public.taken":
            raise DestinationRejected("the name taken is in use", hint="give it another name")

    memory, store = MemoryDestination(), MemoryStore()
    config = as_role(pipeline_config(conninfo, tmp_path, source={"install": "never"}), role)
    try:
        with piped(config, store, FaultyDestination(memory, fail), spark) as running:
            running.until_ready()
            connection.execute("ALTER PUBLICATION pub ADD TABLE secret, taken, keyless")
            pipeline = Changing(conninfo, connection, memory, store, running)
            pipeline.until_same("public.keyless")
            for table, reason in (("public.secret", "permission denied"), ("public.taken", "in use")):
                running.until(lambda t=table: running.states().get(t) is State.ERRORED)
                state = running.status.tables[table].state
                assert reason in f"{state.reason}"
                assert state.solution
                assert state.retry_policy is RetryPolicy.MANUAL
            connection.execute("INSERT INTO keyless VALUES (100, 'streamed')")
            write(connection, "busy")
            pipeline.until_same("public.busy")
            pipeline.until_same("public.keyless")
            connection.execute(f"GRANT SELECT ON secret TO {role}")
            running.pipeline.rollback("public.secret")
            pipeline.until_same("public.secret")
    finally:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def as_role(config: PipelineConfig, role: str) -> PipelineConfig:
    return config.model_copy(update={"pg_connection": config.pg_connection.model_copy(update={"username": role})})
