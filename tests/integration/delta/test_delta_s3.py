"""Delta tables on S3, as the page has it: a pipeline with its own Spark, and the jars that a user is told to name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from delta_tables import DeltaBucket
from docs_blocks import blocks
from headrace.config.delta import DeltaConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.delta import DeltaDestination
from headrace.errors import ConfigError
from headrace.postgres.connection import parse_conninfo
from headrace.stores import MemoryStore
from headrace.testing.postgres import PASSWORD
from headrace.testing.s3 import S3Server
from pipelining import destination_rows, source_rows
from started import Started, commands

Connection = psycopg.Connection[Any]

SOURCE = """
CREATE TABLE items (id bigint PRIMARY KEY, note text, price numeric(10, 2), made timestamptz, n int);
INSERT INTO items SELECT n, 'n' || n, n / 7.0, now(), n FROM generate_series(1, 2000) n;
CREATE TABLE bag (a int, b text);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO bag SELECT 1, 'same' FROM generate_series(1, 5);
CREATE PUBLICATION pub FOR TABLE items, bag;
"""


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def settings(conninfo: str, root: Path, s3: S3Server, **maintenance: Any) -> str:
    """The page's block, for this server and this bucket, in a pipeline that is quick to react."""
    (block,) = [block for block in blocks("docs/destinations/delta.md", "yaml") if "hadoop-aws" in block]
    values = yaml.safe_load(block)
    values["destination"] |= {"warehouse": f"s3a://{s3.bucket}/shop", "maintenance": maintenance}
    values["spark"] |= {"master": "local[2]", "driver_memory": "1g", "short_lived": True}
    server = {"endpoint": f"http://127.0.0.1:{s3.port}", "path.style.access": "true"}
    values["spark"]["conf"] |= {f"spark.hadoop.fs.s3a.{name}": value for name, value in server.items()}
    at = parse_conninfo(conninfo)
    values |= {
        "id": 7,
        "publication_name": "pub",
        "slot_name": f"slot_{at.name}",
        "pg_connection": {
            "host": at.host, "port": at.port, "name": at.name, "username": at.username, "password": PASSWORD
        },
        "data_dir": str(root / "data"),
        "batch": {"max_fill_ms": 50},
        "spool": {"segment_age_ms": 20, "durable": False},
        "receiver": {"status_interval_ms": 50},
    }  # fmt: skip
    path = root / "pipeline.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return str(path)


def until_ready(run: Started, *tables: str) -> None:
    run.until(lambda: all(run.logged('"table moved"', f'"{table}"', '"state": "ready"') for table in tables))


def until_applied(run: Started, connection: Connection) -> None:
    """Without a durable spool, Postgres is told what is in the tables."""
    row = connection.execute("SELECT pg_logical_emit_message(true, 'tests', 'marker')::text").fetchone()
    assert row is not None
    seen = "SELECT confirmed_flush_lsn > %s::pg_lsn FROM pg_replication_slots WHERE database = current_database()"
    run.until(lambda: connection.execute(seen, row).fetchone() == (True,))


def stopped(run: Started, s3: S3Server) -> None:
    run.process.terminate()
    assert run.ended() == 0, "".join(run.err)
    assert not run.logged(s3.secret_key)


@pytest.mark.spark
def test_copied_streamed_altered_and_maintained(
    conninfo: str, connection: Connection, s3: S3Server, tmp_path: Path
) -> None:
    connection.execute(SOURCE)
    lake = DeltaBucket(s3, "shop")
    keys = {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}

    def assert_equal(bag: str = "bag") -> None:
        assert destination_rows(lake, "public.items") == source_rows(connection, "items")
        assert destination_rows(lake, "public.bag") == source_rows(connection, bag)

    with commands() as start:
        run = start("run", settings(conninfo, tmp_path, s3, enabled=False, retention_s=0), **keys)
        until_ready(run, "public.items", "public.bag")
        assert_equal()
        connection.execute("UPDATE items SET note = 'changed' WHERE id % 10 = 0")
        connection.execute("UPDATE items SET id = -id WHERE id BETWEEN 20 AND 30")
        connection.execute("DELETE FROM items WHERE id > 1990")
        connection.execute("DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)")
        until_applied(run, connection)
        assert_equal()
        connection.execute("ALTER TABLE items ADD COLUMN more text, DROP COLUMN made, ALTER COLUMN n TYPE bigint")
        connection.execute("ALTER TABLE items RENAME COLUMN note TO remark")
        connection.execute("INSERT INTO items (id, remark, more, n) VALUES (3000, 'after', 'm', 1::bigint << 40)")
        # Directories cannot be renamed there: the table stays where it is.
        connection.execute("ALTER TABLE bag RENAME TO sack")
        connection.execute("INSERT INTO sack VALUES (2, 'more')")
        until_applied(run, connection)
        assert_equal("sack")
        stopped(run, s3)

        # While nobody looks.
        connection.execute("DELETE FROM items WHERE id % 2 = 0")
        connection.execute("TRUNCATE sack")
        connection.execute("INSERT INTO sack VALUES (7, NULL)")
        often = {"interval_s": 0.2, "small_files": 2, "retention_s": 0, "search_interval_s": 0.2}
        run = start("run", settings(conninfo, tmp_path, s3, **often), **keys)
        until_applied(run, connection)
        # Merged, and of what was merged nothing is left.
        run.until(lambda: [len(lake.data_files(table)) for table in ("public.items", "public.bag")] == [1, 1])
        assert_equal("sack")
        stopped(run, s3)
    assert lake.tables() == ["shop/headrace/pipeline_7", "shop/public/bag", "shop/public/items"]


@pytest.mark.parametrize(("scheme", "advice"), [("s3a", "name its connector"), ("s3", "write s3a://")])
def test_without_the_connector_it_says_what_to_name(scheme: str, advice: str, spark: Any) -> None:
    """The run's Spark has none."""
    destination = DeltaDestination(DeltaConfig(warehouse=f"{scheme}://lake/shop"))
    with pytest.raises(ConfigError, match=f"no file system for the warehouse {scheme}://lake/shop") as raised:
        destination.startup(DestinationContext(1, MemoryStore(), spark))
    assert str(raised.value.hint).startswith(advice)
