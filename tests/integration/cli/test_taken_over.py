"""Commands as real processes where two want one destination: what is refused, and how a run ends that was replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from duckdb_reading import LakeReader, lake_settings
from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import Destination, DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.destinations.parquet import ParquetDestination
from headrace.postgres.connection import parse_conninfo
from headrace.stores import MemoryStore
from headrace.testing.postgres import PASSWORD
from pipelining import destination_rows, source_rows
from started import Started, commands

Connection = psycopg.Connection[Any]


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    with commands() as begin:
        yield begin


def settings(conninfo: str, root: Path) -> Path:
    """A pipeline with a log and a lake."""
    at = parse_conninfo(conninfo)
    connection = {"host": at.host, "port": at.port, "name": at.name, "username": at.username, "password": PASSWORD}
    values = {
        "id": 7,
        "publication_name": "pub",
        "slot_name": f"slot_{at.name}",
        "pg_connection": connection,
        "data_dir": str(root / "data"),
        "destinations": {
            "log": {"kind": "parquet", "location": str(root / "log")},
            "lake": {"kind": "ducklake", **lake_settings(root).model_dump(mode="json", exclude_unset=True)},
        },
        "spark": {"master": "local[1]", "short_lived": True, "driver_memory": "512m"},
        "batch": {"max_fill_ms": 50},
        "spool": {"segment_age_ms": 20},
    }
    path = root / "pipeline.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def claim(destination: Destination) -> None:
    destination.startup(DestinationContext(7, MemoryStore(), None, run_id="run by process 1 on elsewhere"))
    destination.claim()
    destination.shutdown()


@pytest.mark.spark
def test_a_replay_is_refused_while_the_pipeline_runs_and_a_run_that_was_replaced_exits_5(
    connection: Connection, conninfo: str, tmp_path: Path, start: Callable[..., Started]
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text); INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE t")
    path, lake = settings(conninfo, tmp_path), LakeReader(f"sqlite:{tmp_path / 'lake.sqlite'}")
    replay = ("replay", str(tmp_path / "log"), str(path), "--destination", "lake", "--fresh")

    # Given a pipeline that streams
    run = start("run", str(path))
    run.until(lambda: sum('"state": "ready"' in line for line in list(run.err)) == 2)

    # When its log is to be replayed into its lake, then that is refused, and the pipeline goes on
    refused = start(*replay)
    assert refused.ended() == 4, "".join(refused.err)
    said = "".join(refused.err)
    assert "error pipeline 7 is running: its replication slot" in said
    assert "what to do stop it first" in said
    connection.execute("INSERT INTO t VALUES (3, 'three')")
    run.until(lambda: destination_rows(lake, "public.t") == source_rows(connection, "public.t"))

    # When another run takes over both destinations, then the next change ends it
    claim(ParquetDestination(ParquetConfig(location=str(tmp_path / "log"))))
    claim(DuckDBDestination(lake_settings(tmp_path)))
    connection.execute("INSERT INTO t VALUES (4, 'four')")
    assert run.ended() == 5, "".join(run.err)
    assert any("run by process 1 on elsewhere" in line for line in run.err[-3:]), run.err[-3:]
    assert not run.logged('"state": "errored"')

    # And now that it is not running, the log can be replayed
    again = start(*replay)
    assert again.ended() == 0, "".join(again.err)
    # The last row never reached the log.
    connection.execute("DELETE FROM t WHERE id = 4")
    assert destination_rows(lake, "public.t") == source_rows(connection, "public.t")
