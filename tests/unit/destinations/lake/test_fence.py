"""Which run may write to a table, and whose files are whose."""

from __future__ import annotations

import pytest

from headrace.destinations.lake.fence import EPOCH, Fence, is_of_earlier_run
from headrace.errors import DestinationFenced


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
