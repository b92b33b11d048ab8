"""A crash at every named point, in copy and in streaming: the next pipeline on the same files makes every table equal
to the source, with every change once in its log.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crashing import TABLES, Scene
from headrace.pipeline.failpoint import FAILPOINTS
from headrace.pipeline.tables import Tables

Connection = psycopg.Connection[Any]

ONE_SNAPSHOT: dict[str, Any] = {}
BY_KEY = {"initial_copy": {"key_ranges_over_bytes": 0, "rows_per_range": 100}, "max_copy_connections_per_table": 1}

Step = tuple[str, int, str | None]
"""A point, how often it is reached before the crash, and what of the destination fails, so that it is reached."""


def points(settings: dict[str, Any]) -> list[str]:
    """Only a copy by key ranges has a moment between ranges; no table is altered here."""
    possible = [point for point in FAILPOINTS if not point.startswith("alter.")]
    return [point for point in possible if settings is BY_KEY or point != "copy.after_range"]


def once(settings: dict[str, Any]) -> Iterator[Step]:
    for point in points(settings):
        yield point, 1, "write_events" if point.startswith("errored.") else None


def further(settings: dict[str, Any]) -> Iterator[Step]:
    """Batches that have others before them, and errors in a copy."""
    for point in points(settings):
        if point.startswith("errored."):
            yield point, 1, "write_table_rows"
        elif point.startswith("apply.") and point != "apply.after_ready":
            yield point, 3, None


def needs_a_copy(point: str, failing: str | None) -> bool:
    return point.startswith(("copy.", "catchup.")) or point == "apply.after_ready" or failing == "write_table_rows"


def recover_from_each(scene: Scene, steps: Iterator[Step]) -> None:
    life = scene.start()
    life.pipeline.start()
    checked = scene.converge()
    others = cycle(table for table in TABLES if table != "public.keyed")
    for point, count, failing in steps:
        print("crash at", point, count, failing)
        life.arm(point, count, failing)
        if needs_a_copy(point, failing):
            # Copied again while the rest streams, so that a life can reach any point.
            life.pipeline.resync("public.keyed")
            life.pipeline.resync(next(others))
        scene.crash(point)
        life = scene.start()
        life.pipeline.start()
        checked += scene.converge()
    assert checked > 500


@pytest.fixture
def all_like_first_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a first copy may be by key ranges. Here one that is asked for stands for it."""
    monkeypatch.setattr(Tables, "was_copied", lambda *_: False)


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("all_like_first_copies")
@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        pytest.param(BY_KEY, once, id="by-key"),
        pytest.param(ONE_SNAPSHOT, once, id="one-snapshot", marks=pytest.mark.long),
        pytest.param(ONE_SNAPSHOT, further, id="further", marks=pytest.mark.long),
    ],
)
def test_every_crash_is_recovered_from(
    conninfo: str,
    connection: Connection,
    spark: Any,
    tmp_path: Path,
    settings: dict[str, Any],
    steps: Any,
) -> None:
    with Scene(conninfo, connection, spark, tmp_path, **settings) as scene:
        recover_from_each(scene, steps(settings))


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("settings", [ONE_SNAPSHOT, BY_KEY], ids=["one-snapshot", "by-key"])
def test_a_first_start_crashes_at_every_point_in_turn(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """No life gets further than its point: each takes up what several crashes left."""
    # Once all tables are in step none comes to be so again.
    late = [point for point in points(settings) if point.startswith(("apply.", "errored."))]
    late.sort(key=lambda point: point != "apply.after_ready")
    early = [point for point in points(settings) if point not in late]
    with Scene(conninfo, connection, spark, tmp_path, **settings) as scene:
        for point in [*early, *late]:
            print("crash at", point)
            life = scene.start()
            life.arm(point, 1, "write_events" if point.startswith("errored.") else None)
            life.pipeline.start()
            scene.crash(point)
        scene.start().pipeline.start()
        assert scene.converge() > 0
