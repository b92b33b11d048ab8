"""From Postgres into a log, through stops and crashes, and from there into other destinations: equal to the source."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from commanding import invoke, write_config
from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import Destination, DestinationContext
from headrace.destinations.iceberg import IcebergDestination
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.parquet import ParquetDestination, open_log
from headrace.errors import DestinationError
from headrace.lsn import Lsn
from headrace.pipeline.replaying import Replay
from headrace.stores import MemoryStore
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.example_tables import ORDERS
from headrace.testing.faulty_destination import FaultyDestination
from headrace.testing.local_rows import Inserted, batch_of, local_rows, transaction
from headrace.testing.s3 import S3Server
from lakehouse import Lake, iceberg_settings, lake
from load import SCHEMA, Writer
from pipelining import assert_equal_tables, piped, pipeline_config

Connection = psycopg.Connection[Any]

TABLES = ("public.items", "public.journal", "public.scratch")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def source(connection: Connection) -> None:
    connection.execute(SCHEMA.encode())
    connection.execute("INSERT INTO items SELECT n, n, 'n' || n FROM generate_series(-3000, -1) n")
    connection.execute("CREATE PUBLICATION pub FOR TABLE items, journal, scratch")


def replayed(settings: ParquetConfig, destination: Destination, spark: Any, store: MemoryStore) -> None:
    log = open_log(settings.location, settings.storage_options)
    Replay(log, destination, DestinationContext(7, store, spark), store).run()


class Crashes:
    """Every few commits one fails: before it took effect, or after."""

    def __init__(self, inner: ParquetDestination) -> None:
        self._inner, self._commit, self._count = inner, inner._commit, 0
        self._lock = threading.Lock()

    def __call__(self, path: str, content: bytes) -> None:
        with self._lock:
            self._count += 1
            count = self._count
        if count % 4 == 0:
            raise DestinationError("no answer")
        self._commit(path, content)
        if count % 4 == 2:
            raise DestinationError("the answer was lost")


@pytest.mark.usefixtures("source")
def test_a_log_written_through_failures_and_restarts_equals_its_source(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    settings = ParquetConfig(location=str(tmp_path / "log"))
    config, store = pipeline_config(conninfo, tmp_path), MemoryStore()
    for life in range(2):
        destination = ParquetDestination(settings)
        destination._commit = Crashes(destination)  # type: ignore[method-assign]
        stop = threading.Event()
        writers = [Writer(conninfo, number, seed=life, stop=stop) for number in (1 + 2 * life, 2 + 2 * life)]
        with piped(config, store, destination, spark) as running:
            running.until_ready()
            for writer in writers:
                writer.start()
            running.until(lambda: all(writer.transactions >= 15 or writer.error for writer in writers))  # noqa: B023
            stop.set()
            for writer in writers:
                writer.join()
                assert writer.error is None
            if life:
                connection.execute("ALTER TABLE items ADD added int; INSERT INTO items VALUES (-9000, 1, 'x', 2)")
            running.until_applied(connection)
    memory, durable = MemoryDestination(), DurableDestination(tmp_path / "durable.db")
    replayed(settings, memory, spark, MemoryStore())
    assert_equal_tables(connection, memory, *TABLES)
    _replayed_in_pieces(settings, durable, spark)
    assert_equal_tables(connection, durable, *TABLES)
    for table in TABLES[:2]:
        changes = [(change.commit_lsn, change.tx_ordinal) for change in durable.change_log(table)]
        assert len(changes) == len(set(changes)) > 0


def _replayed_in_pieces(settings: ParquetConfig, destination: DurableDestination, spark: Any) -> None:
    """Cut off after every third write, and started again."""
    writes, store = 0, MemoryStore()

    def fail(method: str, _table: str | None) -> None:
        nonlocal writes
        if method in ("write_events", "write_table_rows"):
            writes += 1
            if writes % 3 == 0:
                raise DestinationError("cut off")

    for _ in range(1000):
        try:
            replayed(settings, FaultyDestination(destination, fail), spark, store)
        except DestinationError:
            continue
        return
    raise AssertionError("it never came to an end")


@pytest.mark.usefixtures("source")
def test_from_an_object_store_into_a_lakehouse(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, s3: S3Server
) -> None:
    settings = ParquetConfig(
        location=f"s3://{s3.bucket}/{tmp_path.name}/log",
        storage_options=s3.storage_options,
    )
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), ParquetDestination(settings), spark) as running:
        running.until_ready()
        connection.execute("UPDATE items SET id = -id, note = 'moved' WHERE id > -100")
        connection.execute("DELETE FROM items WHERE id < -2900")
        connection.execute("INSERT INTO journal (what) SELECT 'w' || n FROM generate_series(1, 500) n")
        connection.execute("DELETE FROM journal WHERE id % 3 = 0")
        running.until_applied(connection)
        connection.execute("TRUNCATE scratch, journal")
        connection.execute("INSERT INTO scratch VALUES (1, repeat('toast', 2000))")
        running.until_applied(connection)
        connection.execute("UPDATE scratch SET id = 2")
        running.until_applied(connection)
    warehouse, store = tmp_path / "warehouse", MemoryStore()
    replayed(settings, IcebergDestination(iceberg_settings(warehouse)), spark, store)
    catalog = lake(warehouse)
    assert_equal_tables(connection, Lake(catalog), *TABLES)
    # Nothing is left to do.
    replayed(settings, IcebergDestination(iceberg_settings(warehouse)), spark, store)
    assert_equal_tables(connection, Lake(catalog), *TABLES)
    catalog.close()


@pytest.mark.usefixtures("spark")
def test_the_command(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE items (id int PRIMARY KEY); INSERT INTO items VALUES (1), (2)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE items")
    location = str(tmp_path / "log")
    destination = ParquetDestination(ParquetConfig(location=location))
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
        running.until_ready()
        connection.execute("DELETE FROM items WHERE id = 1")
        running.until_applied(connection)
        moment = connection.execute("SELECT clock_timestamp()::text").fetchone()
        assert moment is not None
        connection.execute("INSERT INTO items VALUES (3)")
        running.until_applied(connection)
    file = write_config(
        tmp_path / "pipeline.yaml", conninfo, destination={"kind": "stdout"}, spark={"master": "local[2]"}
    )
    result = invoke("replay", location, file)
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds == ["drop", "copy", "row", "row", "begin", "delete", "commit", "begin", "insert", "commit"]
    assert result.stderr.strip().startswith("replayed up to ")
    result = invoke("replay", location, file, "--until", str(moment[0]))
    assert "insert" not in [json.loads(line)["kind"] for line in result.stdout.splitlines()]
    assert invoke("replay", location, file, "--until", "yesterday").exit_code == 2
    assert invoke("replay", location, file, "--until", "2020-01-01").exit_code == 2
    assert invoke("replay", str(tmp_path / "nowhere"), file).exit_code == 2
    assert invoke("replay", location, file, "--destination", "lake").exit_code == 2
    itself = write_config(tmp_path / "itself.yaml", conninfo, destination={"kind": "parquet", "location": location})
    refused = invoke("replay", location, itself)
    assert (refused.exit_code, "into itself" in refused.stderr) == (2, True)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("own", [False, True])
def test_transforms_apply_once(tmp_path: Path, own: bool) -> None:
    location, store = tmp_path / "log", MemoryStore()
    destination = ParquetDestination(ParquetConfig(location=str(location)))
    destination.startup(DestinationContext(1, store, None))
    destination.claim()
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [{"id": 1, "name": "copied", "note": "secret"}]), 0)
    changes = transaction(Lsn(100), Inserted(ORDERS, {"id": 2, "name": "streamed", "note": "secret"}))
    destination.write_events(batch_of(changes, end=Lsn(200)))
    destination.shutdown()
    # The log's own destination, written another way: it has seen the same transforms.
    log = {"log": {"kind": "parquet", "location": f"{location}/../log/"}} if own else {}
    masked = {"columns": {"exclude": ["note"], "mask": {"name": {"kind": "fixed", "value": "someone"}}}}
    file = write_config(
        tmp_path / "pipeline.yaml",
        "host=nowhere dbname=none user=nobody",
        destination=None,
        destinations={"lines": {"kind": "stdout"}, **log},
        spark={"master": "local[2]"},
        transforms={"tables": {"public.orders": masked}},
    )
    result = invoke("replay", location, file, "--destination", "lines")
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    rows = [line["row"] for line in lines if "row" in line]
    if own:
        assert [row["note"] for row in rows] == ["secret"] * 2
    else:
        assert rows == [{"id": row["id"], "name": "someone"} for row in rows]
        assert len(rows) == 2
        assert "secret" not in result.stdout
