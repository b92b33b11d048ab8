"""The pipeline's whole process tree is killed at random moments under load; at the end every table equals the source
and every change is once in its log.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crashing import SOURCE, TABLES, Changes
from exactly_once import Oracle
from headrace.config.pipeline import PipelineConfig
from headrace.stores import SqliteStore
from headrace.testing.durable_destination import DurableDestination
from killing import live_and_die
from pipelining import piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

CLIENTS = 4
PATIENCE_S = 180
# Lives take turns: what one has begun, the next goes on with.
BY_KEY = {"initial_copy": {"key_ranges_over_bytes": 0, "rows_per_range": 500}, "max_copy_connections_per_table": 2}


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


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.long)])
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
    with contextlib.ExitStack() as load:
        clients = load.enter_context(changing(conninfo, seed))
        sizes = [live_and_die(configs[life % 2], tmp_path, chance, life, TABLES) for life in range(kills)]
        # Python, receiver and JVM were among the killed; workers too where a batch was large enough for tasks.
        assert max(sizes) >= 3
        # Then the next one makes every table equal to the source
        store = SqliteStore(configs[0].store_path, configs[0].id)
        destination = DurableDestination(tmp_path / "destination.db")
        with piped(configs[0], store, destination, spark) as running:
            running.until_ready(timeout=PATIENCE_S)
            # However early the others have died, there are changes behind the last copies.
            made = sum(client.made for client in clients)
            running.until(lambda: sum(client.made for client in clients) > made + 150)
            load.close()
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
