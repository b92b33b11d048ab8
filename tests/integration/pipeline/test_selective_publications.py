"""Publications that send some columns, rows or schemas, and change while the pipeline runs.

Where the version under test has no such publications, the first one that has them is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from changing_publication import Changing, changing, create, write
from headrace.pipeline import discovery
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
