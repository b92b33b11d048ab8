"""`headrace adopt`: a pipeline goes on after pg_upgrade, and nothing else passes for one."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from commanding import invoke, write_config
from headrace.config.load import load_pipeline_config
from headrace.errors import ConfigError
from headrace.lsn import Lsn
from headrace.pipeline.build import build_store
from headrace.pipeline.source import Source as PipelineSource
from headrace.postgres.publications import published_tables
from headrace.spool import Spool
from headrace.spool.name import IdleMark
from headrace.spool.owner import adopt as adopt_spool
from headrace.spool.owner import owner_of
from headrace.spool.place import publish_json
from headrace.stores import MemoryStore, SqliteStore
from headrace.testing import PostgresServer
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.postgres import PASSWORD
from pipelining import piped, pipeline_config, wait_equal
from receiving import Running, Source

Connection = psycopg.Connection[Any]


def config_of(conninfo: str, source: Source, root: Path) -> Path:
    return write_config(root / "pipeline.yaml", conninfo, slot_name=source.slot, publication_name="p")


def source_in(root: Path, conninfo: str, connection: Connection) -> Source:
    """A source whose spool is where the pipeline of `config_of` has it."""
    return Source(conninfo, connection, root / "data" / "pipeline-1")


def test_a_pipeline_goes_on_after_pg_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with PostgresServer(17) as old:
        with psycopg.connect(old.conninfo(), autocommit=True) as connection:
            source = source_in(tmp_path, old.conninfo(), connection)
            with source.receiving() as running:
                end = source.insert(1, 100)
                running.wait(lambda status: status.spooled >= end)
                connection.close()
                # In order: the server waits until all its WAL has been read.
                old.stop()
        before = owner_of(source.spool().place)
        assert before is not None
        with old.upgraded(18) as new, psycopg.connect(new.conninfo(), autocommit=True) as source.connection:
            source.conninfo = new.conninfo()
            error = Running(source.config()).ended()
            assert isinstance(error, ConfigError)
            assert "headrace adopt" in error.hint
            file = config_of(new.conninfo(), source, tmp_path)
            result = invoke("adopt", file, "--yes")
            assert result.exit_code == 0, result.stderr
            with source.receiving() as running:
                end = source.insert(101, 200)
                running.wait(lambda status: status.spooled >= end)
            assert source.inserted() == list(range(1, 201))
            after = owner_of(source.spool().place)
            assert after is not None
            assert after.system_id != before.system_id
            # Destinations know the source by what it was called when they were first written to.
            assert PipelineSource(load_pipeline_config(file)).identity(MemoryStore()).system_id == before.system_id
            assert "nothing to adopt" in invoke("adopt", file, "--yes").stdout


@pytest.fixture
def upgraded(conninfo: str, connection: Connection, tmp_path: Path) -> Source:
    """A source with a spool that another cluster owned, as it is after an upgrade."""
    source = source_in(tmp_path, conninfo, connection)
    with source.receiving() as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.confirmed >= end)
    place = source.spool().place
    owner = owner_of(place)
    assert owner is not None
    publish_json(place, "owner.json", {"system_id": "1", "database": owner.database, "slot": owner.slot})
    return source


def test_it_needs_to_be_confirmed(upgraded: Source, conninfo: str, tmp_path: Path) -> None:
    file = config_of(conninfo, upgraded, tmp_path)
    result = invoke("adopt", file)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert invoke("adopt", file, "--yes").exit_code == 0


def test_a_cluster_whose_slot_is_behind_the_spool_is_refused(upgraded: Source, conninfo: str, tmp_path: Path) -> None:
    spool = upgraded.spool()
    position = spool.position()
    assert position is not None
    spool.mark_idle(IdleMark(position.end, Lsn(position.covered + (1 << 40))))
    result = invoke("adopt", config_of(conninfo, upgraded, tmp_path), "--yes")
    assert result.exit_code == 2
    assert "the slot goes on at" in result.stderr


def test_a_cluster_with_tables_made_anew_is_refused(upgraded: Source, conninfo: str, tmp_path: Path) -> None:
    (schema,) = published_tables(upgraded.connection, "p")
    store = SqliteStore(tmp_path / "data" / "pipeline-1" / "store.db", 1)
    store.store_table_schema(replace(schema, table=replace(schema.table, id=schema.table.id + 1)), Lsn(1))
    store.close()
    result = invoke("adopt", config_of(conninfo, upgraded, tmp_path), "--yes")
    assert result.exit_code == 2
    assert "table public.t has another OID" in result.stderr


def test_a_running_pipeline_is_left_alone(upgraded: Source, conninfo: str, tmp_path: Path) -> None:
    elsewhere = upgraded.config(uri=str(tmp_path / "elsewhere"))
    with upgraded.receiving(elsewhere) as running:
        running.wait(lambda status: status.state == "streaming")
        result = invoke("adopt", config_of(conninfo, upgraded, tmp_path), "--yes")
    assert "is being read by server process" in result.stderr
    owner = owner_of(upgraded.spool().place)
    assert owner is not None
    assert owner.system_id == "1"


def test_a_slot_that_the_upgrade_did_not_take_along_is_missed(upgraded: Source, conninfo: str, tmp_path: Path) -> None:
    upgraded.connection.execute("SELECT pg_drop_replication_slot(%s)", (upgraded.slot,))
    result = invoke("adopt", config_of(conninfo, upgraded, tmp_path), "--yes")
    assert result.exit_code != 0
    assert f"replication slot {upgraded.slot} does not exist" in result.stderr


def test_another_slot_or_database_is_no_upgrade(upgraded: Source, conninfo: str, tmp_path: Path) -> None:
    file = write_config(tmp_path / "pipeline.yaml", conninfo, slot_name="other", publication_name="p")
    result = invoke("adopt", file, "--yes")
    assert result.exit_code == 2
    assert f"the spool belongs to slot {upgraded.slot}" in result.stderr


@pytest.mark.parametrize("starts_between", [0, 1])
def test_a_spool_that_is_lost_after_an_adoption(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, starts_between: int
) -> None:
    """The destination goes on to know the source by its first system identifier."""
    connection.execute("CREATE TABLE t (id serial PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    connection.execute("INSERT INTO t SELECT FROM generate_series(1, 20)")
    file = write_config(tmp_path / "pipeline.yaml", conninfo, publication_name="p")
    settings = {"publication_name": "p", "invalidated_slot_behavior": "recreate"}
    config = pipeline_config(conninfo, tmp_path / "data", **settings)
    path = tmp_path / "destination.db"
    destination = DurableDestination(path)

    def run() -> None:
        with (
            closing(build_store(config)) as store,
            piped(config, store, destination, spark) as running,
        ):
            running.until_ready()
            connection.execute("INSERT INTO t DEFAULT VALUES")
            wait_equal(running, connection, destination, "public.t")

    run()
    # Given an upgrade: spool and destination know the source by another system identifier
    place = Spool.open(config.spool_config()).place
    owner = owner_of(place)
    assert owner is not None
    publish_json(place, "owner.json", {"system_id": "1", "database": owner.database, "slot": owner.slot})
    with closing(sqlite3.connect(path)) as recorded, recorded:
        recorded.execute("UPDATE owner SET source = replace(source, ?, '1')", (owner.system_id,))
    if starts_between:
        # Adopted by a version that kept nothing of it in the store
        adopt_spool(place, owner.system_id)
    else:
        adopted = invoke("adopt", file, "--yes")
        assert adopted.exit_code == 0, adopted.stderr
    for _ in range(starts_between):
        run()
    # When the spool is lost, once and again
    for _ in range(2):
        shutil.rmtree(tmp_path / "data" / "pipeline-1" / "spool")
        run()


def test_an_adoption_that_is_interrupted_can_be_repeated(
    upgraded: Source, conninfo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    file = config_of(conninfo, upgraded, tmp_path)
    SqliteStore(load_pipeline_config(file).store_path, 1).close()

    def end(*_: object) -> None:
        raise ConfigError("interrupted")

    with monkeypatch.context() as interrupted:
        interrupted.setattr("headrace.cli.adopt.adopt_spool", end)
        assert "interrupted" in invoke("adopt", file, "--yes").stderr
    for expected in ("goes on with cluster", "nothing to adopt"):
        assert expected in invoke("adopt", file, "--yes").stdout
    shutil.rmtree(upgraded.spool().place.location)
    with closing(SqliteStore(load_pipeline_config(file).store_path, 1)) as store:
        assert PipelineSource(load_pipeline_config(file)).identity(store).system_id == "1"
