"""From Postgres into Delta tables, by way of the whole pipeline: what DuckDB reads is what the source has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from delta_tables import DeltaLake, delta_settings
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.delta import DeltaDestination
from headrace.pipeline.build import build_destination, spark_config
from headrace.stores import MemoryStore
from pipelining import assert_equal_tables, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

SOURCE = """
CREATE TABLE items (id bigint PRIMARY KEY, note text, price numeric(10, 2), made timestamptz, n int);
INSERT INTO items SELECT n, 'n' || n, n / 7.0, now(), n FROM generate_series(1, 2000) n;
CREATE TABLE bag (a int, b text);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO bag SELECT 1, 'same' FROM generate_series(1, 5);
CREATE PUBLICATION pub FOR TABLE items, bag;
"""


def test_tables_are_copied_streamed_and_altered(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    connection.execute(SOURCE)
    lake, store = DeltaLake(tmp_path / "lake"), MemoryStore()

    def destination() -> DeltaDestination:
        return DeltaDestination(delta_settings(tmp_path / "lake"))

    config = pipeline_config(conninfo, tmp_path)
    with piped(config, store, destination(), spark) as running:
        running.until_ready()
        assert_equal_tables(connection, lake, "public.items", "public.bag")
        connection.execute("UPDATE items SET note = 'changed' WHERE id % 10 = 0")
        connection.execute("UPDATE items SET id = -id WHERE id BETWEEN 20 AND 30")
        connection.execute("DELETE FROM items WHERE id > 1990")
        connection.execute("DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)")
        wait_equal(running, connection, lake, "public.items", "public.bag")
        with connection.transaction():
            connection.execute("INSERT INTO items (id, note) VALUES (3000, 'before')")
            connection.execute("ALTER TABLE items ADD COLUMN more text, DROP COLUMN made")
            connection.execute("ALTER TABLE items RENAME COLUMN note TO remark")
            connection.execute("UPDATE items SET more = 'm', remark = 'after' WHERE id IN (1, 3000)")
            connection.execute("ALTER TABLE items ALTER COLUMN n TYPE bigint")
            connection.execute("INSERT INTO items (id, n) VALUES (3001, 1::bigint << 40)")
        wait_equal(running, connection, lake, "public.items")
    # While nobody looks.
    connection.execute("DELETE FROM items WHERE id % 2 = 0")
    connection.execute("TRUNCATE bag")
    connection.execute("INSERT INTO bag VALUES (7, NULL)")
    with piped(config, store, destination(), spark) as running:
        wait_equal(running, connection, lake, "public.items", "public.bag")
    assert sum(1 for _ in (tmp_path / "lake/public/items").glob("*.parquet")) > 1


def test_a_pipeline_file_names_it(tmp_path: Path) -> None:
    config = PipelineConfig.model_validate(
        {
            "id": 1,
            "publication_name": "pub",
            "pg_connection": {"host": "db", "name": "shop", "username": "u"},
            "destination": {"kind": "delta", "warehouse": str(tmp_path)},
            "spark": {"conf": {"spark.sql.extensions": "their.Extension"}},
        }
    )
    destination = build_destination(config)
    assert isinstance(destination, DeltaDestination)
    settings = spark_config(config, destination)
    assert "io.delta:delta-spark_4.1_2.13:4.4.0" in settings.packages
    assert settings.conf["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,their.Extension"
