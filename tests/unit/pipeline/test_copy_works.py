"""Ranges over tasks: never more connections than allowed, and about equal work for each."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headrace.initial_copy.ranges import CopyRange
from headrace.pipeline.copy_works import copy_works, spread
from headrace.schema import TableName


def ranges(*sizes: int) -> list[CopyRange]:
    return [CopyRange(TableName("public", f"t{n}"), ("id",), estimated_bytes=size) for n, size in enumerate(sizes)]


def cluster(master: str, slots: int) -> SimpleNamespace:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=slots))


def test_a_small_machine_has_a_task_per_range() -> None:
    parts = ranges(3, 2, 1)
    assert copy_works(cluster("local[2]", 2), parts, 4) == [(part,) for part in parts]


@pytest.mark.parametrize("master", ["local[16]", "spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_a_large_one_has_as_many_tasks_as_connections(master: str) -> None:
    works = copy_works(cluster(master, 16), ranges(*range(1, 21)), 4)
    assert len(works) == 4
    assert sorted(part.relation.name for work in works for part in work) == sorted(f"t{n}" for n in range(20))


def test_work_is_spread_evenly() -> None:
    works = spread(ranges(50, 30, 20, 20, 10, 10, 10), 3)
    assert sorted(sum(part.estimated_bytes for part in work) for work in works) == [50, 50, 50]


def test_no_more_lists_than_ranges() -> None:
    assert len(spread(ranges(1, 1), 8)) == 2
    assert spread([], 8) == []
