"""Damaged segments: the tables that need one stop, and name the file; the others go on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.config.pipeline import PipelineConfig
from headrace.errors import SpoolCorrupt
from headrace.pipeline import Pipeline
from headrace.spool import Spool
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from pipelining import assert_equal_tables, piped, pipeline_config, wait_equal
from receiving import Running
from recvlogical import current_lsn

Connection = psycopg.Connection[Any]

A, B = "public.a", "public.b"
SPOOL = {"segment_age_ms": 20, "keep_seconds": 0}


@dataclass(frozen=True)
class Scene:
    """Two tables at the destination, and segments of changes that are not applied: one of each table by turns."""

    connection: Connection
    config: PipelineConfig
    store: MemoryStore
    destination: DurableDestination
    spark: Any
    segments: dict[str, list[Path]]


@pytest.fixture
def scene(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> Scene:
    for name in "ab":
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, note text)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    config = pipeline_config(conninfo, tmp_path, spool=SPOOL)
    with piped(config, store, destination, spark) as running:
        running.until_ready()
    return Scene(connection, config, store, destination, spark, receive(config, connection))


def receive(config: PipelineConfig, connection: Connection) -> dict[str, list[Path]]:
    """Spool four transactions as four segments; the files of each table's."""
    spool = Spool.open(config.spool_config())
    known = {name for segment in spool.segments() for name in segment.names}
    running = Running(config.receiver_config())
    files: dict[str, list[Path]] = {"a": [], "b": []}
    try:
        for number, table in enumerate("abab"):
            rows = f"SELECT n, 'val-' || n FROM generate_series({number * 100}, {number * 100 + 99}) n"
            connection.execute(f"INSERT INTO {table} {rows}")
            end = current_lsn(connection)
            running.wait(lambda status, end=end: status.covered >= end)
            new = {name for segment in spool.segments() for name in segment.names} - known
            known |= new
            paths = [Path(config.spool_config().uri) / str(name) for name in new]
            # The message that ends the wait may have a segment of its own.
            files[table] += [path for path in paths if b"val-" in path.read_bytes()]
    finally:
        running.stop()
    assert [len(some) for some in files.values()] == [2, 2]
    return files


def flip_value(content: bytes) -> bytes:
    return content.replace(b"val-50", b"wal-50", 1)


def shorten_value(content: bytes) -> bytes:
    position = content.index(b"val-50") - 1
    return content[:position] + bytes([content[position] - 1]) + content[position + 1 :]


def zero(content: bytes) -> bytes:
    position = content.index(b"val-40")
    return content[:position] + bytes(400) + content[position + 400 :]


def truncate(content: bytes) -> bytes:
    return content[: content.index(b"val-50")]


@pytest.mark.parametrize("damage", [flip_value, shorten_value, zero, truncate])
def test_damaged_messages_stop_only_the_tables_that_need_them(
    scene: Scene, damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = scene.segments["a"][0]
    content = file.read_bytes()
    file.write_bytes(damage(content))
    assert file.read_bytes() != content
    if damage is zero:
        monkeypatch.setattr(DurableDestination, "whole_batches", True)
    with piped(scene.config, scene.store, scene.destination, scene.spark) as running:
        running.until(lambda: running.states().get(A) is State.ERRORED)
        running.until(lambda: len(scene.destination.rows(B)) == 200)
        assert_equal_tables(scene.connection, scene.destination, B)
        state = running.status.tables[A].state
        assert str(file) in str(state.reason)
        assert "headrace resync PIPELINE.YAML public." in str(state.solution)
        assert scene.destination.rows(A) == []
        scene.connection.execute("INSERT INTO b VALUES (1000, 'later')")
        running.until(lambda: len(scene.destination.rows(B)) == 201)
        # And the remedy helps.
        running.pipeline.resync(A)
        running.until_ready()
        wait_equal(running, scene.connection, scene.destination, A, B)


def test_damaged_messages_that_tasks_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.batches.LOCAL_BYTES", -1)
    monkeypatch.setattr(DurableDestination, "whole_batches", True)
    file = scene.segments["a"][0]
    file.write_bytes(flip_value(file.read_bytes()))
    with piped(scene.config, scene.store, scene.destination, scene.spark) as running:
        running.until(lambda: running.states().get(A) is State.ERRORED)
        assert str(file) in str(running.status.tables[A].state.reason)
        running.until(lambda: len(scene.destination.rows(B)) == 200)
        assert_equal_tables(scene.connection, scene.destination, B)


def digit_of_a_table(files: dict[str, list[Path]]) -> Path:
    """In the index, at both places where the file has it."""
    file = files["a"][0]
    content = file.read_bytes()
    oid = re.search(rb'"tables": \{"(\d+)"', content)
    assert oid is not None
    damaged = content.replace(oid[0], oid[0][:-2] + bytes([oid[0][-2] ^ 1]) + oid[0][-1:])
    assert damaged.count(oid[0]) == 0
    file.write_bytes(damaged)
    return file


def content_of_another_segment(files: dict[str, list[Path]]) -> Path:
    files["b"][0].write_bytes(files["a"][0].read_bytes())
    return files["b"][0]


def nothing_but_zeros(files: dict[str, list[Path]]) -> Path:
    file = files["a"][1]
    file.write_bytes(bytes(file.stat().st_size))
    return file


@pytest.mark.parametrize("damage", [digit_of_a_table, content_of_another_segment, nothing_but_zeros])
def test_a_damaged_index_ends_the_pipeline_with_a_remedy(
    scene: Scene, damage: Callable[[dict[str, list[Path]]], Path]
) -> None:
    file = damage(scene.segments)
    with Pipeline(scene.config, scene.store, scene.destination, spark=scene.spark) as pipeline:
        pipeline.start()
        with pytest.raises(SpoolCorrupt) as caught:
            pipeline.wait(60)
    assert str(file) in str(caught.value)
    assert "remove it and set invalidated_slot_behavior to recreate" in caught.value.hint
    # And the remedy helps.
    file.unlink()
    recreate = scene.config.model_validate({**dict(scene.config), "invalidated_slot_behavior": "recreate"})
    with piped(recreate, scene.store, scene.destination, scene.spark) as running:
        running.until(lambda: copies_of(scene.store) == [2, 2])
        running.until_ready()
        wait_equal(running, scene.connection, scene.destination, A, B)


def copies_of(store: MemoryStore) -> list[int]:
    histories = [store.get_table_state_history(table) for table in sorted(store.get_table_states())]
    return [[entry.state.state for entry in history].count(State.FINISHED_COPY) for history in histories]
