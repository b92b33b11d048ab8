"""A pipeline in a process of its own, which is killed with everything it has started."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from headrace.config.pipeline import PipelineConfig
from headrace.stores import SqliteStore
from headrace.table_state import State

__all__ = ["Child", "live_and_die"]

CHILD = Path(__file__).parent / "faults" / "pipeline_child.py"
PATIENCE_S = 400


class Child:
    """A running pipeline. It says what it has come to."""

    def __init__(self, config: Path, root: Path, *resync: str, stop_at: str | None = None) -> None:
        self.log = root / "child.log"
        self._config = config
        environment = os.environ if stop_at is None else {**os.environ, "STOP_AT": stop_at}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), str(config), str(root / "destination.db"), *resync],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
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
        while (said := self._hear(word)) != word:
            assert said, f"the pipeline ended by itself:\n{self._end_of_log()}"

    def _hear(self, word: str) -> str:
        try:
            return self._said.get(timeout=PATIENCE_S)
        except queue.Empty:
            states = "\n".join(_unready(self._config))
            msg = f"not {word} in {PATIENCE_S} s; not Ready, by the store:\n{states}\nits log:\n{self._end_of_log()}"
            raise AssertionError(f"{msg}\nwhere its threads are:\n{self._stacks()}") from None

    def _stacks(self) -> str:
        """By way of the log: what comes from now on, until nothing does for a moment."""
        start = size = self.log.stat().st_size
        deadline = time.monotonic() + 10
        self.process.send_signal(signal.SIGUSR1)
        while time.monotonic() < deadline:
            time.sleep(0.3)
            before, size = size, self.log.stat().st_size
            if start < before == size:
                break
        return self.log.read_bytes()[start:].decode()

    def _end_of_log(self) -> str:
        return self.log.read_text()[-8000:]

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


def _unready(file: Path) -> list[str]:
    """The tables that the store does not call Ready, and why, by the names of their last versions."""
    config: PipelineConfig = pickle.loads(file.read_bytes())
    store = SqliteStore(config.store_path, config.id)
    try:
        names = {version.table_id: str(version.schema.table.name) for version in store.get_table_schemas()}
        states = store.get_table_states().items()
        return [f"{table} {names.get(table)}: {state}" for table, state in states if state.state is not State.READY]
    finally:
        store.close()


def live_and_die(config: PipelineConfig, root: Path, chance: random.Random, life: int, tables: Sequence[str]) -> int:
    """One life, ended before it runs, in its copies, or while it streams; returns of how many processes.

    Now and then one of `tables` is copied again.
    """
    file = root / "config"
    file.write_bytes(pickle.dumps(config))
    resync = [chance.choice(tables)] if chance.random() < 0.3 else []
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
