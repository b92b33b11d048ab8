"""A spool that was lost, and a recreation of the slot that was interrupted: SpoolGap with its remedy, or a new copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awaiting import until
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.memory import MemoryDestination
from headrace.errors import ConfigError, SpoolGap
from headrace.lsn import Lsn
from headrace.pipeline import Pipeline, source
from headrace.postgres.slots import drop_slot, slot_state
from headrace.spool import Spool
from headrace.spool.place import LocalPlace
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from pipelining import piped, pipeline_config, wait_equal
from receiving import Running
from recvlogical import current_lsn

Connection = psycopg.Connection[Any]

A, B = "public.a", "public.b"


class Killed(BaseException):
    """Stands for the end of the process."""


@dataclass(frozen=True)
class Scene:
    """A source, and what a pipeline keeps from one run to the next."""

    connection: Connection
    store: MemoryStore
    destination: DurableDestination
    spark: Any


@pytest.fixture
def scene(connection: Connection, spark: Any, tmp_path: Path) -> Scene:
    create_tables(connection)
    return Scene(connection, MemoryStore(), DurableDestination(tmp_path / "destination.db"), spark)


def create_tables(connection: Connection) -> None:
    for name in "ab":
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} (note) SELECT 'copied' FROM generate_series(1, 20)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")


def insert(connection: Connection) -> None:
    for name in "ab":
        connection.execute(f"INSERT INTO {name} (note) VALUES ('streamed')")
        connection.execute(f"UPDATE {name} SET note = note || 'u' WHERE id < 5")


def run_until_equal(scene: Scene, config: PipelineConfig, copies: int) -> None:
    """Run a pipeline until every table was copied so often in all, and is equal to its source."""
    with piped(config, scene.store, scene.destination, scene.spark) as running:
        running.until(lambda: copies_of(scene.store) == [copies, copies])
        running.until_ready()
        insert(scene.connection)
        wait_equal(running, scene.connection, scene.destination, A, B)


def copies_of(store: MemoryStore) -> list[int]:
    histories = [store.get_table_state_history(table) for table in sorted(store.get_table_states())]
    return [[entry.state.state for entry in history].count(State.FINISHED_COPY) for history in histories]


def spool_unapplied(config: PipelineConfig, end: Lsn) -> None:
    """Receive up to a position, and confirm it, without applying anything."""
    running = Running(config.receiver_config())
    try:
        running.wait(lambda status: status.confirmed >= end)
    finally:
        running.stop()


@contextmanager
def killed_at(owner: Any, name: str, *, after: bool) -> Iterator[None]:
    """The process ends at the first call of a function, before or after it has done its work."""
    real = getattr(owner, name)

    def end(*args: Any, **kwargs: Any) -> None:
        if after:
            real(*args, **kwargs)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, end)
        yield


def lose_changes(connection: Connection, slot: str) -> None:
    """Move the slot beyond changes that no receiver has seen."""
    insert(connection)
    until(lambda: not is_active(connection, slot))
    connection.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", (slot,))


def is_active(connection: Connection, slot: str) -> bool:
    state = slot_state(connection, slot)
    assert state is not None
    return state.active


def test_a_lost_spool(conninfo: str, scene: Scene, tmp_path: Path) -> None:
    config = pipeline_config(conninfo, tmp_path)
    run_until_equal(scene, config, copies=1)
    # Given changes that were confirmed to the server and not applied, and whose only copy is lost
    insert(scene.connection)
    spool_unapplied(config, current_lsn(scene.connection))
    shutil.rmtree(tmp_path / "pipeline-1" / "spool")
    with Pipeline(config, scene.store, scene.destination, spark=scene.spark) as pipeline:
        pipeline.start()
        with pytest.raises(SpoolGap) as caught:
            pipeline.wait(60)
    assert "invalidated_slot_behavior" in caught.value.hint
    assert copies_of(scene.store) == [1, 1]
    run_until_equal(scene, pipeline_config(conninfo, tmp_path, invalidated_slot_behavior="recreate"), copies=2)


def test_a_spool_that_is_removed_while_it_is_used(conninfo: str, scene: Scene, tmp_path: Path) -> None:
    recreate = pipeline_config(conninfo, tmp_path, invalidated_slot_behavior="recreate")
    with piped(recreate, scene.store, scene.destination, scene.spark) as running:
        running.until_ready()
        shutil.rmtree(tmp_path / "pipeline-1" / "spool")
        insert(scene.connection)
        running.until(lambda: copies_of(scene.store) == [2, 2], 60)
        running.until_ready()
        insert(scene.connection)
        wait_equal(running, scene.connection, scene.destination, A, B)


def test_a_recreation_that_is_interrupted_anywhere(conninfo: str, scene: Scene, tmp_path: Path) -> None:
    config = pipeline_config(conninfo, tmp_path)
    recreate = pipeline_config(conninfo, tmp_path, invalidated_slot_behavior="recreate")
    run_until_equal(scene, config, copies=1)
    points = [(source, "drop_slot", False), (source, "drop_slot", True), (LocalPlace, "delete", True)]
    points += [(Spool, "forget", True), (source, "create_slot", False), (source, "create_slot", True)]
    for copies, (owner, name, after) in enumerate(points, 2):
        lose_changes(scene.connection, config.slot_name)
        # Given a process that ends while the slot is made anew
        with (
            killed_at(owner, name, after=after),
            Pipeline(recreate, scene.store, scene.destination, spark=scene.spark) as pipeline,
        ):
            pipeline.start()
            with pytest.raises(Killed):
                pipeline.wait(60)
        # Once the old slot is gone, nothing is left to decide.
        kept = (name, after) == ("drop_slot", False)
        run_until_equal(scene, recreate if kept else config, copies)


def test_the_spool_of_another_pipeline_is_not_emptied(conninfo: str, scene: Scene, tmp_path: Path) -> None:
    config = pipeline_config(conninfo, tmp_path)
    run_until_equal(scene, config, copies=1)
    before = sorted((tmp_path / "pipeline-1" / "spool").glob("*.arrow"))
    assert before
    other = pipeline_config(conninfo, tmp_path, slot_name=f"{config.slot_name}_other")
    with Pipeline(other, MemoryStore(), MemoryDestination(), spark=scene.spark) as pipeline:
        pipeline.start()
        with pytest.raises(ConfigError, match=config.slot_name):
            pipeline.wait(60)
    assert sorted((tmp_path / "pipeline-1" / "spool").glob("*.arrow")) == before
    drop_slot(scene.connection, other.slot_name)
