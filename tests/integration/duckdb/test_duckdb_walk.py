"""A random walk through DDL and rows, into a DuckDB file: its columns and rows are the source's at every checkpoint."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckdb_reading import DuckDBFile, canonical_rows
from headrace.pipeline import PipelineState
from headrace.pipeline.build import build_destination
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.canonical import canonical, canonical_text
from pipelining import PATIENCE_S, Piped, piped, pipeline_config
from schema_walk import Reading, Walk, walk_seed


def reading(file: DuckDBFile) -> Reading:
    def read(table: str) -> tuple[Sequence[str] | None, list[str]]:
        try:
            found = file.table(table.split(".", 1))
        except duckdb.Error as error:
            raise KeyError(table) from error
        found = found.rename_columns(list(source_names(found.column_names)))
        return found.column_names, sorted(canonical_text(canonical(row)) for row in canonical_rows(found))

    return read


def source_names(names: Sequence[str]) -> Iterator[str]:
    """Where names differ in case only, all but the first have a number behind them."""
    seen: set[str] = set()
    for name in names:
        plain = re.sub(r"_\d+_*$", "", name)
        yield plain if plain.casefold() in seen else name
        seen.add(plain.casefold())


def checkpoint(walk: Walk, running: Piped, read: Reading) -> None:
    def ready() -> bool:
        states = running.states()
        is_running = running.status.state is PipelineState.RUNNING
        return is_running and states.keys() == walk.names() and set(states.values()) <= {State.READY}

    walk.touch()
    running.until(ready)
    walk.until_same(read, lambda: running.until(ready), PATIENCE_S)


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("told", [True, False], ids=["trigger", "relations"])
@pytest.mark.parametrize("steps", [60, 300])
def test_a_file_follows_a_walk(conninfo: str, spark: Any, tmp_path: Path, told: bool, steps: int) -> None:
    seed = walk_seed()
    chance, path = random.Random(seed), tmp_path / "walk.duckdb"
    with Walk(conninfo, seed, told=told) as walk:
        config = pipeline_config(
            conninfo,
            tmp_path,
            source={"install": "always" if told else "never"},
            destination={"kind": "duckdb", "database": str(path)},
        )
        with piped(config, MemoryStore(), build_destination(config), spark) as running:
            running.until_ready()
            while steps > 0:
                some = min(steps, chance.randint(5, 40))
                walk.steps(some)
                checkpoint(walk, running, reading(DuckDBFile(path)))
                steps -= some
    print(dict(walk.done), dict(walk.refused))
    assert walk.done.total() > 3 * walk.refused.total()
