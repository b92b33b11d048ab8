"""Two runs of one pipeline that may recreate the slot: neither drops a slot that the other reads, or has just made."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.config.pipeline import PipelineConfig
from headrace.errors import HeadraceError, SlotInUse, SlotNotFound, SlotUndecodable
from headrace.pipeline.source import Source, recreate_slot
from headrace.postgres.slots import create_slot, drop_slot, slot_state, try_lock_slot
from headrace.stores import MemoryStore
from headrace.table_state import State, TableState
from headrace.testing.durable_destination import DurableDestination
from pipelining import Piped, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]
T = "public.t"


def create_table(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id serial PRIMARY KEY, note text)")
    connection.execute("INSERT INTO t (note) SELECT 'copied' FROM generate_series(1, 20)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE t")


def insert(connection: Connection) -> None:
    connection.execute("INSERT INTO t (note) SELECT 'streamed' FROM generate_series(1, 5)")


def recreating(conninfo: str, root: Path) -> PipelineConfig:
    return pipeline_config(conninfo, root, invalidated_slot_behavior="recreate")


def copies_of(store: MemoryStore) -> int:
    histories = [store.get_table_state_history(table) for table in store.get_table_states()]
    return sum(entry.state.state is State.FINISHED_COPY for history in histories for entry in history)


@pytest.mark.parametrize(
    ("root", "problem"),
    [("one", SlotNotFound("it was gone")), ("two", SlotUndecodable("it could not be decoded"))],
    ids=["in the same data directory", "in another data directory"],
)
def test_a_slot_that_another_run_reads_is_left_alone(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, root: str, problem: HeadraceError
) -> None:
    create_table(connection)
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    with piped(recreating(conninfo, tmp_path / "one"), store, destination, spark) as running:
        running.until_ready()
        # When another run, in this data directory or one of its own, is slower to act on a problem of the old slot
        assert not recreate_slot(recreating(conninfo, tmp_path / root), [store], problem, threading.Event())
        insert(connection)
        wait_equal(running, connection, destination, T)
        assert running.status.receiver.reconnects == 0
        assert copies_of(store) == 1


def test_a_slot_that_another_run_has_just_made_is_left_alone(
    conninfo: str, connection: Connection, tmp_path: Path
) -> None:
    create_table(connection)
    config, store = recreating(conninfo, tmp_path), MemoryStore()
    store.update_table_states({1: TableState(State.INIT)})
    store.update_table_states({1: TableState(State.DATA_SYNC)})
    create_slot(connection, config.slot_name)
    before = slot_state(connection, config.slot_name)
    assert not recreate_slot(config, [store], SlotNotFound("it was gone"), threading.Event())
    assert slot_state(connection, config.slot_name) == before
    assert store.get_table_states()[1].state is State.DATA_SYNC


def test_runs_that_find_no_slot_take_turns(conninfo: str, connection: Connection, tmp_path: Path) -> None:
    create_table(connection)
    config, created = recreating(conninfo, tmp_path), list[bool]()
    # Given another run that is about to create the slot
    with psycopg.connect(conninfo, autocommit=True) as other:
        assert try_lock_slot(other, config.slot_name)
        starts = threading.Thread(target=lambda: created.append(Source(config).prepare_slot([MemoryStore()])))
        starts.start()
        create_slot(other, config.slot_name)
        before = slot_state(connection, config.slot_name)
    starts.join(60)
    assert created == [False]
    assert slot_state(connection, config.slot_name) == before


def test_a_run_that_waits_for_its_turn_can_be_stopped(conninfo: str, connection: Connection, tmp_path: Path) -> None:
    create_table(connection)
    config, stopping = recreating(conninfo, tmp_path), threading.Event()
    with psycopg.connect(conninfo, autocommit=True) as other:
        assert try_lock_slot(other, config.slot_name)
        stopping.set()
        assert not Source(config).prepare_slot([MemoryStore()], stopping)
    assert slot_state(connection, config.slot_name) is None


def test_two_runs_that_lose_their_slot_recreate_it_once(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    """The one that reads the new slot continues; the other waits for it, and drops nothing."""
    create_table(connection)
    stores = MemoryStore(), MemoryStore()
    configs = [recreating(conninfo, tmp_path / name) for name in ("one", "two")]
    path = tmp_path / "destination.db"
    destination = DurableDestination(path)
    with piped(configs[0], stores[0], destination, spark) as first:
        first.until_ready()
        with piped(configs[1], stores[1], DurableDestination(path), spark) as second:
            second.until(lambda: isinstance(second.status.receiver.problem, SlotInUse))
            drop_slot(connection, configs[0].slot_name, terminate=True)
            before = sum(map(copies_of, stores))

            def is_reading(running: Piped) -> bool:
                return running.status.receiver.holds_slot and running.states() == {T: State.READY}

            first.until(lambda: sum(map(copies_of, stores)) > before and any(map(is_reading, (first, second))))
            reader, other = (first, second) if is_reading(first) else (second, first)
            other.until(lambda: isinstance(other.status.receiver.problem, SlotInUse))
            for _ in range(3):
                insert(connection)
                wait_equal(reader, connection, destination, T)
            assert is_reading(reader)
            assert sum(map(copies_of, stores)) == before + 1
            # And when the reader stops, the other takes over.
            reader.pipeline.stop()
            other.until_ready()
            insert(connection)
            wait_equal(other, connection, destination, T)
