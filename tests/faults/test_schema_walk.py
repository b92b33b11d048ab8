"""Random walks through DDL and rows: at checkpoints and at the end the destination's columns and rows are the source's.

Quick: in this process, with the event trigger and without it. Long: 500 steps, with the whole tree of the pipeline's
processes killed ten times in between. And with a crash at each point of the apply path in turn.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crashing import CrashedLife
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.contract import Destination
from headrace.destinations.memory import MemoryDestination
from headrace.errors import TableNotFound
from headrace.pipeline import PipelineState
from headrace.pipeline.build import build_destination
from headrace.pipeline.failpoint import FAILPOINTS, set_hook
from headrace.pipeline.tables import Tables
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from killing import Child
from pipelining import PATIENCE_S, Piped, piped, pipeline_config
from schema_walk import Reading, Walk, walk_seed
from walk_reading import destination_settings, durable_reading, memory_reading, reading, reading_within

KILLS = 10
QUICK_STEPS = 60
# Transactions that the server itself can never decode come about by chance: see `undecodable`.
RECREATE = {"invalidated_slot_behavior": "recreate"}
BY_KEY = {"initial_copy": {"key_ranges_over_bytes": 0, "rows_per_range": 8}, "max_copy_connections_per_table": 1}
# Around a schema change, and where what is stored of it is read again.
SOME_POINTS = ("alter.after_applying", "alter.before_applied", "apply.after_write", "copy.after_write")


def checkpoint(walk: Walk, running: Piped, read: Reading) -> None:
    """Everything is applied, and every table Ready; what the publication is looked at for may take a little longer."""

    def ready() -> bool:
        if running.status.state is not PipelineState.RUNNING:
            return False
        states = running.states()
        return states.keys() == walk.names() and all(state is State.READY for state in states.values())

    walk.touch()
    running.until(ready)
    walk.until_same(read, lambda: running.until(ready), PATIENCE_S)


def walk_for(kind: str, conninfo: str, seed: int, told: bool) -> Walk:
    # To Delta `a` and `A` are one column.
    return Walk(conninfo, seed, told=told, cases=kind != "delta")


def opened(kind: str, config: PipelineConfig, root: Path) -> tuple[Destination, Reading]:
    if kind == "memory":
        memory = MemoryDestination()
        return memory, memory_reading(memory)
    if kind == "durable":
        durable = DurableDestination(root / "destination.db")
        return durable, durable_reading(durable)
    return build_destination(config), reading_within(kind, root)


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("told", [True, False], ids=["trigger", "relations"])
@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        pytest.param("memory", QUICK_STEPS, marks=pytest.mark.matrix),
        ("durable", QUICK_STEPS),
        ("delta", QUICK_STEPS),
        ("duckdb", QUICK_STEPS),
        pytest.param("memory", 500, marks=pytest.mark.long),
        pytest.param("durable", 500, marks=pytest.mark.long),
        pytest.param("delta", 300, marks=pytest.mark.long),
        pytest.param("duckdb", 300, marks=pytest.mark.long),
    ],
)
def test_the_destination_follows_a_walk(
    conninfo: str, spark: Any, tmp_path: Path, kind: str, steps: int, told: bool
) -> None:
    seed = walk_seed(quick=steps <= QUICK_STEPS)
    chance = random.Random(seed)
    with walk_for(kind, conninfo, seed, told) as walk:
        settings = {"source": {"install": "always" if told else "never"}, **destination_settings(kind, tmp_path)}
        config = pipeline_config(conninfo, tmp_path, **RECREATE, **settings)
        destination, read = opened(kind, config, tmp_path)
        with piped(config, MemoryStore(), destination, spark) as running:
            running.until_ready()
            while steps > 0:
                some = min(steps, chance.randint(5, 40))
                walk.steps(some)
                checkpoint(walk, running, read)
                steps -= some
    print(dict(walk.done), dict(walk.refused))
    assert walk.done.total() > 3 * walk.refused.total()


def needs_a_copy(point: str) -> bool:
    return point.startswith(("copy.", "catchup.")) or point == "apply.after_ready"


class Crashes:
    """A walk over which one life of the pipeline after the other is crashed, on the same files and destination."""

    def __init__(self, walk: Walk, config: PipelineConfig, spark: Any, chance: random.Random) -> None:
        self._walk, self._config, self._spark, self._chance = walk, config, spark, chance
        self._destination = MemoryDestination()
        config.directory.mkdir(parents=True, exist_ok=True)

    def crash(self, point: str) -> None:
        """Live until all is the same, then walk on until the crash."""
        life = self._start()
        try:
            self._converge(life)
            print("-- crash at", point, flush=True)
            life.arm(point, 1, "write_events" if point.startswith("errored.") else None)
            self._walk_until_crashed(life, point)
        finally:
            self._bury(life)
        self._walk.steps(5)

    def end(self) -> None:
        life = self._start()
        try:
            self._converge(life)
        finally:
            self._bury(life)

    def _start(self) -> CrashedLife:
        life = CrashedLife(self._config, self._config.data_dir, self._spark, self._destination)
        set_hook(life.reached)
        life.pipeline.start()
        return life

    def _converge(self, life: CrashedLife) -> None:
        checkpoint(self._walk, Piped(life.pipeline), memory_reading(self._destination))

    def _walk_until_crashed(self, life: CrashedLife, point: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not life.crashed.is_set():
            assert time.monotonic() < deadline, f"{point} was never reached"
            with contextlib.suppress(TableNotFound):
                if needs_a_copy(point):
                    life.pipeline.resync(self._chance.choice(list(life.pipeline.status.tables)))
            self._walk.steps(3)
            life.crashed.wait(0.3)

    def _bury(self, life: CrashedLife) -> None:
        assert life.pipeline.stop(PATIENCE_S)
        set_hook(None)
        life.store.close()


@pytest.fixture
def all_like_first_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a first copy may be by key ranges. Here one that is asked for stands for it."""
    monkeypatch.setattr(Tables, "was_copied", lambda *_: False)


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("all_like_first_copies")
@pytest.mark.parametrize(
    ("points", "told", "settings"),
    [
        pytest.param(SOME_POINTS, True, {}, id="some"),
        pytest.param(FAILPOINTS, True, BY_KEY, id="all-trigger", marks=pytest.mark.long),
        pytest.param(FAILPOINTS, False, BY_KEY, id="all-relations", marks=pytest.mark.long),
    ],
)
def test_a_walk_with_a_crash_at_each_point(
    conninfo: str, spark: Any, tmp_path: Path, points: Sequence[str], told: bool, settings: dict[str, Any]
) -> None:
    seed = walk_seed(quick=points is SOME_POINTS)
    install = {"install": "always" if told else "never"}
    config = pipeline_config(conninfo, tmp_path, source=install, table_error_retry_delay_ms=50, **RECREATE, **settings)
    with Walk(conninfo, seed, told=told) as walk:
        crashes = Crashes(walk, config, spark, random.Random(seed))
        for point in points:
            crashes.crash(point)
        crashes.end()
    print(dict(walk.done), dict(walk.refused))


def killed_config(conninfo: str, root: Path, kind: str, told: bool) -> PipelineConfig:
    config = pipeline_config(
        conninfo,
        root,
        source={"install": "always" if told else "never"},
        spark={"master": "local[2]", "driver_memory": "1g", "short_lived": True},
        **RECREATE,
        **destination_settings(kind, root),
    )
    config.directory.mkdir(parents=True, exist_ok=True)
    return config


def slots_lost(log: Path) -> list[str]:
    """Where a new slot was made for any other reason than the server's failing, or that the publication was dropped."""
    made = [line for line in log.read_text().splitlines() if "from a new slot" in line]
    return [line for line in made if not re.search("fails to decode|publication .* does not exist", line)]


class Kills:
    """Lives of a pipeline in a process of its own, each ended by kill -9 of everything it has started."""

    def __init__(self, walk: Walk, config: PipelineConfig, root: Path, chance: random.Random) -> None:
        self._walk, self._root, self._chance = walk, root, chance
        self._file = root / "config"
        self._file.write_bytes(pickle.dumps(config))

    def live(self, steps: int, number: int) -> int:
        """Some of the steps before it is seen to run, the others while it does; returns of how many processes."""
        early = self._chance.randint(0, steps // 2)
        self._walk.steps(early)
        child = Child(self._file, self._root)
        try:
            word = "running" if number == 0 else self._chance.choice(["starting", "running", "ready"])
            self._walk.let_go()
            child.until(word)
            for _ in range(steps - early):
                self._walk.step()
                time.sleep(self._chance.uniform(0, 0.2))  # the moment of death is the point here
            print(f"-- life {number}: killed when it was {word} and {steps - early} steps on", flush=True)
        finally:
            size = child.kill()
        return size

    def settle(self, read: Reading) -> None:
        """A life that nobody disturbs: it makes everything the same."""
        self._walk.touch()
        child = Child(self._file, self._root)

        def turn() -> None:
            assert child.process.poll() is None, child.log.read_text()[-4000:]
            time.sleep(0.3)

        try:
            child.until("ready")
            self._walk.until_same(read, turn, 2 * PATIENCE_S)
        finally:
            child.kill()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("told", [True, False], ids=["trigger", "relations"])
@pytest.mark.parametrize("kind", ["durable", "iceberg", "delta", "duckdb", "ducklake"])
def test_a_walk_with_kills(conninfo: str, tmp_path: Path, kind: str, told: bool) -> None:
    seed = walk_seed(quick=False)
    chance = random.Random(seed)
    read = reading(kind, tmp_path)
    with walk_for(kind, conninfo, seed, told) as walk:
        kills = Kills(walk, killed_config(conninfo, tmp_path, kind, told), tmp_path, chance)
        sizes = []
        for number in range(KILLS):
            sizes.append(kills.live(500 // KILLS, number))
            if chance.random() < 0.3:
                kills.settle(read)
        kills.settle(read)
    assert not slots_lost(tmp_path / "child.log")
    # Python, receiver and JVM were among the killed.
    assert max(sizes) >= 3
    print(dict(walk.done), dict(walk.refused))
