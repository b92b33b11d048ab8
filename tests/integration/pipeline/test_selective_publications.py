"""Publications that send some columns, rows or schemas, and change while the pipeline runs.

Where the version under test has no such publications, the first one that has them is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from changing_publication import Changing, changing, create, write
from headrace.pipeline import discovery
from headrace.table_state import State
from headrace.testing.postgres import DEFAULT_VERSION, PostgresServer
from pipelining import wait_equal

pytestmark = pytest.mark.matrix

SELECTIVE = max(DEFAULT_VERSION, 15)
"""With column lists, row filters and FOR TABLES IN SCHEMA."""
GENERATING = max(DEFAULT_VERSION, 18)
"""With generated columns that are sent."""


@pytest.fixture(scope="module", autouse=True)
def looks_are_quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "INTERVAL_S", 0.5)
        yield


@pytest.fixture(scope="module")
def selective(
    servers: Callable[[int], PostgresServer], spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Changing]:
    """Some columns and rows of tables are published."""
    root, names = tmp_path_factory.mktemp("selective"), ("cut", "picked")
    with (
        servers(SELECTIVE).database() as conninfo,
        changing(conninfo, root, spark, f"TABLE {', '.join(names)}", names) as pipeline,
    ):
        yield pipeline


def test_a_column_list_that_changes(selective: Changing) -> None:
    for columns in ("id, v", "id, n"):
        selective.execute("ALTER PUBLICATION pub DROP TABLE cut", f"ALTER PUBLICATION pub ADD TABLE cut ({columns})")
        write(selective.connection, "cut")
        selective.until_same("public.cut", f"(SELECT {columns} FROM cut) AS t")


def test_a_row_filter_that_changes(selective: Changing) -> None:
    for condition in ("id < 10", "id > 5"):
        selective.execute("ALTER PUBLICATION pub DROP TABLE picked")
        selective.execute(f"ALTER PUBLICATION pub ADD TABLE picked WHERE ({condition})")
        write(selective.connection, "picked")
        selective.until_same("public.picked", f"(SELECT * FROM picked WHERE {condition}) AS t")


def test_a_list_of_all_columns_does_not_grow(
    servers: Callable[[int], PostgresServer], spark: Any, tmp_path: Path
) -> None:
    """No change of the table has to come to show that: the publication names its columns."""
    with (
        servers(SELECTIVE).database() as conninfo,
        changing(
            conninfo, tmp_path, spark, "TABLE cut (id, v, n), busy", ("cut", "busy"), source={"install": "always"}
        ) as pipeline,
    ):
        pipeline.execute("ALTER TABLE cut ADD more int DEFAULT 7", "ALTER TABLE busy ADD more int DEFAULT 7")
        pipeline.running.until_applied(pipeline.connection)
        assert pipeline.same("public.cut", "(SELECT id, v, n FROM cut) AS t")
        assert pipeline.same("public.busy")
        pipeline.execute("ALTER TABLE cut RENAME n TO m")
        write(pipeline.connection, "cut", "busy")
        pipeline.until_same("public.cut", "(SELECT id, v, m FROM cut) AS t")
        pipeline.until_same("public.busy")
        assert [pipeline.copies(table) for table in ("cut", "busy")] == [1, 1]


def test_new_tables_of_a_published_schema(servers: Callable[[int], PostgresServer], spark: Any, tmp_path: Path) -> None:
    with (
        servers(SELECTIVE).database() as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
        changing(conninfo, tmp_path, spark, "TABLES IN SCHEMA shop", ("shop.busy", "shop.leaves")) as pipeline,
    ):
        create(connection, "shop.created", "attic.moved")
        write(connection, "shop.busy", "shop.created", "attic.moved", "shop.leaves")
        pipeline.execute("ALTER TABLE attic.moved SET SCHEMA shop", "ALTER TABLE shop.leaves SET SCHEMA attic")
        for table in ("shop.busy", "shop.created", "shop.moved"):
            pipeline.until_same(table)
        pipeline.running.until(lambda: len(pipeline.running.status.tables) == 3)
        write(connection, "shop.moved", "shop.busy")
        wait_equal(pipeline.running, connection, pipeline.destination, "shop.busy", "shop.created", "shop.moved")


@pytest.mark.parametrize("install", ["always", "never"])
def test_generated_columns_that_are_sent(
    servers: Callable[[int], PostgresServer], spark: Any, tmp_path: Path, install: str
) -> None:
    sent = "TABLE a WITH (publish_generated_columns = stored)"
    with (
        servers(GENERATING).database() as conninfo,
        changing(conninfo, tmp_path, spark, sent, ("a",), source={"install": install}) as pipeline,
    ):
        pipeline.execute("ALTER TABLE a ADD g int GENERATED ALWAYS AS (n * 2) STORED")
        write(pipeline.connection, "a")
        pipeline.until_same("public.a")
        assert pipeline.copies("a") == 2
        if install == "always":
            # Computed anew for every row, which nothing but the trigger tells.
            pipeline.execute("ALTER TABLE a ALTER g SET EXPRESSION AS (n * 3)")
            pipeline.until_same("public.a")
            assert pipeline.copies("a") == 3
        pipeline.execute("ALTER TABLE a ALTER g DROP EXPRESSION", "UPDATE a SET g = 1 WHERE id = 5")
        pipeline.until_same("public.a")


@pytest.mark.parametrize("install", ["always", "never"])
def test_what_a_policy_refuses_of_a_publication(
    servers: Callable[[int], PostgresServer], spark: Any, tmp_path: Path, install: str
) -> None:
    names = ("busy", "cut", "picked", "keeps", "mild")
    own = {
        "public.cut": {"deny": ["change_column_list"]},
        "public.picked": {"deny": ["change_row_filter"]},
        "public.keeps": {"policy": "lenient"},
        "public.mild": {"policy": "lenient"},
    }
    with (
        servers(SELECTIVE).database() as conninfo,
        changing(
            conninfo, tmp_path, spark, f"TABLE {', '.join(names)}", names,
            source={"install": install}, schema_changes={"tables": own},
        ) as pipeline,
    ):  # fmt: skip
        running = pipeline.running
        pipeline.execute("ALTER TABLE keeps DROP v", "INSERT INTO keeps VALUES (100)")
        running.until(lambda: any(row["id"] == 100 for row in pipeline.destination.rows("public.keeps").to_pylist()))
        some = "WHERE (id < 10)"
        pipeline.execute(
            f"ALTER PUBLICATION pub SET TABLE busy, cut (id, v), picked {some}, keeps {some}, mild {some}",
        )
        write(pipeline.connection, "busy", "cut", "picked", "mild")
        stopped = {
            "cut": "change_column_list",
            "picked": "change_row_filter",
            "keeps": "lose the columns that it has kept",
        }

        def refused() -> None:
            for table, why in stopped.items():
                running.until(lambda t=table: running.states()[f"public.{t}"] is State.ERRORED)
                assert why in str(running.status.tables[f"public.{table}"].state.reason)

        refused()
        pipeline.until_same("public.mild", f"(SELECT * FROM mild {some}) AS t")
        pipeline.until_same("public.busy")
        # Looks that come later do not copy it either, nor does it get past them by a rollback.
        create(pipeline.connection, "late")
        pipeline.execute("ALTER PUBLICATION pub ADD TABLE late")
        pipeline.until_same("public.late")
        refused()
        for table in stopped:
            before = len(pipeline.store.get_table_state_history(pipeline.oid(table)))
            running.pipeline.rollback(f"public.{table}")
            running.until(lambda t=table, n=before: _last_states(pipeline, t, n) == [State.ERRORED])
        refused()
        assert all("v" in row for row in pipeline.destination.rows("public.keeps").to_pylist())
        for table in stopped:
            running.pipeline.resync(f"public.{table}")
        pipeline.until_same("public.cut", "(SELECT id, v FROM cut) AS t")
        for table in ("picked", "keeps"):
            pipeline.until_same(f"public.{table}", f"(SELECT * FROM {table} {some}) AS t")
        assert [pipeline.copies(table) for table in names] == [1, 2, 2, 2, 2]


def _last_states(pipeline: Changing, table: str, length: int) -> list[State]:
    history = pipeline.store.get_table_state_history(pipeline.oid(table))
    return [entry.state.state for entry in history[length - 1 :]]


def test_a_copy_for_another_column_list_waits_for_those_who_wrote_under_the_old_one(
    servers: Callable[[int], PostgresServer], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows come with the columns of before, behind the copy."""
    monkeypatch.setattr(discovery, "INTERVAL_S", 600.0)
    with (
        servers(SELECTIVE).database() as conninfo,
        changing(conninfo, tmp_path, spark, "TABLE cut (id, v)", ("cut",)) as pipeline,
        psycopg.connect(conninfo) as writer,
        capture_logs() as logs,
    ):
        writer.execute("INSERT INTO cut VALUES (100, 'written before', 1)")
        pipeline.execute("ALTER PUBLICATION pub SET TABLE cut (id, v, n)", "INSERT INTO cut VALUES (101, 'after', 2)")
        waiting = "waiting for transactions that write to the table"
        pipeline.running.until(lambda: any(line["event"] in (waiting, "copied") for line in logs))
        # A connection that has seen the new list goes on with it; another one begins with the writer's row.
        (here,) = pipeline.connection.execute("SELECT pg_current_wal_lsn()").fetchone() or ()
        confirmed = "FROM pg_replication_slots WHERE database = current_database() AND confirmed_flush_lsn >= %s"
        pipeline.running.until(lambda: pipeline.connection.execute(f"SELECT {confirmed}", [here]).rowcount == 1)
        pipeline.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()"
        )
        writer.commit()
        pipeline.until_same("public.cut")
        wait_equal(pipeline.running, pipeline.connection, pipeline.destination, "public.cut")
        assert pipeline.copies("cut") == 2
