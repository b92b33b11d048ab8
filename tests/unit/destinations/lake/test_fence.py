"""Which run may write to a table, and whose files are whose."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from awaiting import until
from headrace.destinations.contract import DestinationContext
from headrace.destinations.lake.contract import NewTable
from headrace.destinations.lake.fence import EPOCH, Fence, PipelineRecord, is_of_earlier_run
from headrace.errors import DestinationFenced
from headrace.stores import MemoryStore


def test_a_run_marks_tables_and_is_kept_from_those_of_later_runs() -> None:
    fence = Fence(1, 3)
    assert fence.admit({}, "public.t") == {EPOCH: "3"}
    assert fence.admit({EPOCH: "2"}, "public.t") == {EPOCH: "3"}
    assert fence.admit({EPOCH: "3"}, "public.t") == {}
    assert [fence.has_marked({EPOCH: epoch}) for epoch in ("2", "3")] == [False, True]
    with pytest.raises(DestinationFenced, match=r"pipeline 1 has taken over table public\.t: its epoch is 4"):
        fence.admit({EPOCH: "4"}, "public.t")


def test_a_run_that_has_claimed_nothing() -> None:
    fence = Fence(1)
    assert fence.admit({}, "public.t") == {}
    assert not fence.has_marked({})
    with pytest.raises(DestinationFenced):
        fence.admit({EPOCH: "1"}, "public.t")


@pytest.mark.parametrize(
    ("name", "earlier"),
    [
        ("headrace-1-e2x0123456789ab-x.parquet", True),
        ("headrace-1-e10x0123456789ab-x.parquet", False),
        ("headrace-1-e3x0123456789ab-x.parquet", False),
        ("headrace-11-e2x0123456789ab-x.parquet", False),
        # Of a version that had no epochs, and of others.
        ("headrace-1-0123456789ab-x.parquet", False),
        ("00000-0-of-spark.parquet", False),
    ],
)
def test_files_of_earlier_runs(name: str, earlier: bool) -> None:
    assert is_of_earlier_run(name, Fence(1, 3).file_prefix) is earlier


def test_the_files_of_a_run_are_its_own() -> None:
    fence = Fence(1, 3)
    before = fence.file_prefix
    fence.epoch = 4
    assert not is_of_earlier_run(f"{before}x.parquet", fence.file_prefix)


class Tables:
    """A catalog, and the one table in it: a record, which may be dropped."""

    def __init__(self) -> None:
        self.found: dict[str, str] | None = None

    def load(self, _name: object) -> dict[str, str] | None:
        return self.found

    def create(self, table: NewTable) -> dict[str, str]:
        self.found = dict(table.properties)
        return self.found

    def wrapped(self, _found: object, _wrapping: object) -> Tables:
        return self

    def properties(self) -> dict[str, str]:
        assert self.found is not None
        return self.found

    def add(self, _written: object, properties: Mapping[str, str]) -> None:
        self.properties().update(properties)


def test_a_record_that_was_dropped_hands_out_no_epoch_again() -> None:
    """The tables still have the epochs of earlier runs."""
    tables, epochs = Tables(), []
    plan: Any = SimpleNamespace(name=("headrace", "pipeline_1"), defaults={})
    for _ in range(2):
        for _ in range(3):
            fence, catalog = Fence(1), cast("Any", tables)
            PipelineRecord(catalog, plan, fence).claim(DestinationContext(1, MemoryStore(), None, ()))
            epochs.append(fence.epoch)
        tables.found = None
        until(lambda: time.time_ns() // 1_000_000 > epochs[-1])
    assert epochs == sorted(set(epochs))
    assert epochs[1:3] == [epochs[0] + 1, epochs[0] + 2]
