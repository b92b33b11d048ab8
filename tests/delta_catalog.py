"""A pipeline whose Delta tables are registered in a catalog, and what Spark's SQL then finds by their names.

By itself, `python delta_catalog.py CONNINFO DIRECTORY METASTORE`, with a Spark that goes by a Hive metastore.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psycopg
import yaml

from docs_blocks import blocks
from headrace.pipeline.build import build_destination, spark_config
from headrace.spark.session import build_session
from headrace.stores import MemoryStore
from headrace.testing.canonical import canonical_column
from pipelining import Piped, assert_equal_tables, piped, pipeline_config

__all__ = ["registered_renamed_and_removed"]


class _ByName:
    """The tables of the session's catalog, as the comparing functions of `pipelining` want a destination."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = self._spark.sql(f"SELECT * FROM {table}").toArrow()
        columns = [canonical_column(column) for column in found.columns]
        return [dict(zip(found.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def registered_renamed_and_removed(conninfo: str, root: Path, spark: Any, settings: dict[str, Any]) -> None:
    """With the session's own catalog, whatever it is."""
    config = pipeline_config(conninfo, root, on_table_removed="drop", **settings)
    store, by_name = MemoryStore(), _ByName(spark)

    def tables(namespace: str) -> list[str]:
        return sorted(row["tableName"] for row in spark.sql(f"SHOW TABLES IN {namespace}").collect())

    with psycopg.connect(conninfo, autocommit=True) as source:
        source.execute("CREATE TABLE items (id bigint PRIMARY KEY, note text, n int); CREATE TABLE other (id int)")
        source.execute("INSERT INTO items SELECT n, 'n' || n, n FROM generate_series(1, 100) n")
        source.execute("CREATE PUBLICATION pub FOR TABLE items, other")
        with piped(config, store, build_destination(config), spark) as running:
            running.until_ready()
            assert tables("public") == ["items", "other"]
            assert_equal_tables(source, by_name, "public.items")
            source.execute("UPDATE items SET note = 'changed' WHERE id % 3 = 0")
            source.execute("DELETE FROM items WHERE id % 7 = 0")
            source.execute("ALTER TABLE items ADD COLUMN more text, ALTER COLUMN n TYPE bigint")
            source.execute("INSERT INTO items VALUES (1000, 'new', 1::bigint << 40, 'm')")
            running.until_applied(source)
            assert_equal_tables(source, by_name, "public.items")
            source.execute("CREATE SCHEMA shop")
            source.execute("ALTER TABLE items RENAME TO articles")
            source.execute("ALTER TABLE articles SET SCHEMA shop")
            source.execute("DELETE FROM shop.articles WHERE id = 1")
            running.until_applied(source)
            assert (tables("public"), tables("shop")) == (["other"], ["articles"])
            assert_equal_tables(source, by_name, "shop.articles")
            _dropped(running, source)
            running.until(lambda: tables("public") == [])
        # An entry that somebody took away comes back, at the next start.
        spark.sql("DROP TABLE shop.articles")
        with piped(config, store, build_destination(config), spark) as running:
            source.execute("UPDATE shop.articles SET note = 'last' WHERE id = 2")
            running.until_applied(source)
            assert_equal_tables(source, by_name, "shop.articles")


def _dropped(running: Piped, source: psycopg.Connection[Any]) -> None:
    source.execute("DROP TABLE other")
    running.until(lambda: "public.other" not in running.states())


def _main(conninfo: str, root: Path, metastore: str) -> None:
    """As the page has it."""
    (block,) = [block for block in blocks("docs/destinations/delta.md", "yaml") if "metastore" in block]
    settings = yaml.safe_load(block)
    settings["destination"]["warehouse"] = str(root / "lake")
    assert settings["spark"]["conf"].keys() >= {"spark.hadoop.hive.metastore.uris"}
    settings["spark"]["conf"]["spark.hadoop.hive.metastore.uris"] = metastore
    settings["spark"] |= {"master": "local[2]", "driver_memory": "1g", "short_lived": True}
    config = pipeline_config(conninfo, root, **settings)
    session = build_session(spark_config(config, build_destination(config)))
    registered_renamed_and_removed(conninfo, root, session, settings)
    session.stop()


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
