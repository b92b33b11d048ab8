"""A pipeline from a real Postgres into a DuckDB file and into a lake, read by others while it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from docs_blocks import blocks, run
from duckdb_reading import DuckDBFile, LakeReader, duckdb_with_lake
from headrace.pipeline import Pipeline
from headrace.pipeline.build import build_destination
from headrace.stores import MemoryStore
from pipelining import PATIENCE_S, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

KINDS = ("duckdb", "ducklake")
ACCOUNTS, TOTAL = 20, 2_000

LOOK = """
import sys, time, duckdb
while True:
    try:
        with duckdb.connect(sys.argv[1], read_only=True) as connection:
            print(*connection.execute(sys.argv[2]).fetchone(), flush=True)
    except duckdb.Error:
        pass
    time.sleep(0.01)
"""
SUMS = "SELECT (SELECT sum(v) FROM {0}public.a), (SELECT sum(v) FROM {0}public.b)"


def settings(kind: str, root: Path, **more: Any) -> dict[str, Any]:
    if kind == "duckdb":
        return {"kind": kind, "database": str(root / "shop.duckdb"), **more}
    lake = {"catalog": {"uri": str(root / "lake.sqlite")}, "data_path": str(root / "lake")}
    return {"kind": kind, **lake, **more}


def reader(kind: str, root: Path) -> DuckDBFile | LakeReader:
    return DuckDBFile(root / "shop.duckdb") if kind == "duckdb" else LakeReader(f"sqlite:{root}/lake.sqlite")


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_copied_streamed_and_altered(
    kind: str, conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, note text, price numeric(10, 2), at timestamptz)")
    connection.execute("ALTER TABLE items ALTER note SET STORAGE EXTERNAL")
    connection.execute(
        "INSERT INTO items "
        "SELECT n, repeat('long ', 1000 * (n % 2)::int), n / 7.0, now() FROM generate_series(1, 1500) n"
    )
    connection.execute("CREATE TABLE nothing_yet (id int PRIMARY KEY, v text[])")
    connection.execute("CREATE TABLE bag (a int, b text); ALTER TABLE bag REPLICA IDENTITY FULL")
    connection.execute("INSERT INTO bag SELECT 1, 'same' FROM generate_series(1, 5)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE items, nothing_yet, bag")
    config = pipeline_config(conninfo, tmp_path, destination=settings(kind, tmp_path))
    tables, read = ("public.items", "public.nothing_yet", "public.bag"), reader(kind, tmp_path)
    with piped(config, MemoryStore(), build_destination(config), spark) as running:
        running.until_ready()
        connection.execute("UPDATE items SET price = price + 1 WHERE id % 10 = 1")
        connection.execute("UPDATE items SET id = -id WHERE id BETWEEN 20 AND 30")
        connection.execute("DELETE FROM items WHERE id > 1400")
        connection.execute("INSERT INTO nothing_yet VALUES (1, NULL), (2, '{x,NULL}')")
        connection.execute("DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)")
        wait_equal(running, connection, read, *tables)
        with connection.transaction():
            connection.execute("UPDATE items SET note = 'before' WHERE id = 50")
            connection.execute("ALTER TABLE items ADD COLUMN more int DEFAULT 7, DROP COLUMN at")
            connection.execute("UPDATE items SET more = 8 WHERE id = 51")
            connection.execute("ALTER TABLE nothing_yet RENAME COLUMN v TO w")
        connection.execute("TRUNCATE bag")
        connection.execute("INSERT INTO bag VALUES (2, 'after')")
        wait_equal(running, connection, read, *tables)


@contextmanager
def looking(kind: str, root: Path) -> Iterator[Callable[[], tuple[int, int]]]:
    """Reads the sums of both tables in one query, as often as it is called, from outside of the pipeline."""
    if kind == "ducklake":
        lake = duckdb_with_lake().cursor()
        lake.execute(f"ATTACH 'ducklake:sqlite:{root}/lake.sqlite' AS looking (READ_ONLY)")
        yield lambda: lake.execute(SUMS.format("looking.")).fetchone() or (0, 0)
        lake.execute("DETACH looking")
        return
    arguments = [sys.executable, "-c", LOOK, str(root / "shop.duckdb"), SUMS.format("")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        out = process.stdout
        assert out is not None

        def look() -> tuple[int, int]:
            one, other = out.readline().split()
            return int(one), int(other)

        yield look
        process.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_over_two_tables_is_never_seen_half(
    kind: str, conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    for name in "ab":
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)")
        connection.execute(f"INSERT INTO {name} SELECT n, {TOTAL // ACCOUNTS} FROM generate_series(1, {ACCOUNTS}) n")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    more = {"release": True} if kind == "duckdb" else {}
    config = pipeline_config(conninfo, tmp_path, destination=settings(kind, tmp_path, **more))
    seen = set()
    with piped(config, MemoryStore(), build_destination(config), spark) as running:
        running.until_ready()
        with looking(kind, tmp_path) as look:
            number = 0
            while len(seen) < 5:
                for _ in range(5):
                    number += 1
                    with connection.transaction():
                        connection.execute("UPDATE a SET v = v - 1 WHERE id = %s", (number % ACCOUNTS + 1,))
                        connection.execute("UPDATE b SET v = v + 1 WHERE id = %s", (-number % ACCOUNTS + 1,))
                seen.add(look())
        running.until_applied(connection)
    assert {one + other for one, other in seen} == {2 * TOTAL}
    assert reader(kind, tmp_path).rows("public.a")


def test_the_duckdb_page(conninfo: str, connection: Connection, spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Written as the first block says, read as the page says."""
    monkeypatch.chdir(tmp_path)
    copy_orders("docs/destinations/duckdb.md", conninfo, connection, spark, tmp_path)
    (code,) = blocks("docs/destinations/duckdb.md", "python")
    assert run(code, {})["rows"] == [(1, "kettle"), (2, "teapot")]


def test_the_ducklake_page(conninfo: str, connection: Connection, spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    copy_orders("docs/destinations/ducklake.md", conninfo, connection, spark, tmp_path)
    (code,) = blocks("docs/destinations/ducklake.md", "python")
    # Its extensions come from packages here
    lines = [line for line in code.splitlines() if "INSTALL" not in line and "duckdb.connect" not in line]
    assert len(lines) == len(code.splitlines()) - 2
    names = run("\n".join(lines), {"connection": duckdb_with_lake().cursor()})
    assert names["rows"] == [(1, "kettle"), (2, "teapot")]
    names["connection"].execute("DETACH lake")


def copy_orders(page: str, conninfo: str, connection: Connection, spark: Any, root: Path) -> None:
    connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text)")
    connection.execute("INSERT INTO orders VALUES (1, 'kettle'), (2, 'teapot')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE orders")
    destination = yaml.safe_load(blocks(page, "yaml")[0])["destination"]
    config = pipeline_config(conninfo, root / "data", destination=destination, mode="copy_only")
    with Pipeline(config, MemoryStore(), build_destination(config), spark=spark) as pipeline:
        pipeline.start()
        assert pipeline.wait(PATIENCE_S)
