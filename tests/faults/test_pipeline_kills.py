"""The pipeline's whole process tree is killed at random moments under load; at the end every table equals the source
and every change is once in its log.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from crashing import SOURCE, TABLES, Changes
from exactly_once import Oracle
from headrace.config.pipeline import PipelineConfig
from headrace.stores import SqliteStore
from headrace.testing.durable_destination import DurableDestination
from pipelining import piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

CHILD = Path(__file__).parent / "pipeline_child.py"
CLIENTS = 4
PATIENCE_S = 180
# Lives take turns: what one has begun, the next goes on with.
BY_KEY = {"initial_copy": {"key_ranges_over_bytes": 0, "rows_per_range": 500}, "max_copy_connections_per_table": 2}


class Child:
    """A running pipeline. It says what it has come to."""

    def __init__(self, config: Path, root: Path, *resync: str) -> None:
        self.log = root / "child.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), str(config), str(root / "destination.db"), *resync],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._said: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(line.strip())
        self._said.put("")

    def until(self, word: str) -> None:
        while (said := self._said.get(timeout=PATIENCE_S)) != word:
            assert said, f"the pipeline ended by itself:\n{self.log.read_text()[-4000:]}"

    def kill(self) -> int:
        """The whole tree: this Python, its receiver, the JVM, Spark's workers. Returns how many they were."""
        top = psutil.Process(self.process.pid)
        top.suspend()  # so that it starts no more
        tree = [*top.children(recursive=True), top]
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        _, alive = psutil.wait_procs(tree, 60)
        assert not alive
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return len(tree)


@contextlib.contextmanager
def changing(conninfo: str, seed: int) -> Iterator[list[Changes]]:
    clients = [Changes(conninfo, seed, number=number, thinking_s=0.15) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.stop()


def live_and_die(config: PipelineConfig, root: Path, chance: random.Random, life: int) -> int:
    """One life, ended before it runs, in its copies, or while it streams; returns of how many processes."""
    file = root / "config"
    file.write_bytes(pickle.dumps(config))
    resync = [chance.choice(TABLES)] if chance.random() < 0.3 else []
    child = Child(file, root, *resync)
    try:
        # The first life is let into its copies.
        word = "running" if life == 0 else chance.choice(["starting", "running", "ready", "ready"])
        child.until(word)
        moment = chance.uniform(0, 8 if word == "starting" else 3)
        time.sleep(moment)  # the moment of death is the point here
        print(f"life {life}: killed {moment:.3f} s after it was {word}, to copy again {resync}", flush=True)
    finally:
        size = child.kill()
    return size


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.long)])
def test_kill_the_whole_tree_at_any_moment(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    # Given a source under load, whose transactions are streamed early
    connection.execute(SOURCE)
    connection.execute(f"ALTER DATABASE {connection.info.dbname} SET logical_decoding_work_mem = '64kB'")
    oracle = Oracle(connection)
    configs = [configured(conninfo, tmp_path, settings) for settings in (BY_KEY, {})]
    # When the pipeline is killed again and again
    with changing(conninfo, seed):
        sizes = [live_and_die(configs[life % 2], tmp_path, chance, life) for life in range(kills)]
    # Python, receiver and JVM were among the killed; workers too where a batch was large enough for tasks.
    assert max(sizes) >= 3
    # Then the next one makes every table equal to the source
    store = SqliteStore(configs[0].store_path, configs[0].id)
    destination = DurableDestination(tmp_path / "destination.db")
    with piped(configs[0], store, destination, spark) as running:
        running.until_ready(timeout=PATIENCE_S)
        wait_equal(running, connection, destination, *TABLES, timeout=PATIENCE_S)
        checked = oracle.check(store, destination, *TABLES)
    store.close()
    print(f"{checked} changes in the logs, each once")
    assert checked > 100


def configured(conninfo: str, root: Path, settings: dict[str, Any]) -> PipelineConfig:
    spark = {"master": "local[2]", "driver_memory": "1g", "short_lived": True}
    config = pipeline_config(conninfo, root, spark=spark, **settings)
    config.directory.mkdir(parents=True, exist_ok=True)
    return config
