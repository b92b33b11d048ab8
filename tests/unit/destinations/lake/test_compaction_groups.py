"""Choice of files to write anew: which, together with which, and how often a row is written in the long run."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.config.iceberg import MaintenanceConfig
from headrace.destinations.lake.files import DeletionVector, LiveFile
from headrace.destinations.lake.maintenance.groups import choose_groups

MIB = 1 << 20
SETTINGS = MaintenanceConfig(small_files=5, target_file_bytes=8 * MIB, deleted_ratio=0.3)
_numbers = count()


def file(size: int, records: int = 100, deleted: int = 0, partition: str = "[]", spec: int = 0) -> LiveFile:
    path = f"file:///t/{next(_numbers):09}.parquet"
    vector = DeletionVector(path, f"{path}.puffin", 4, 40, deleted, "{}") if deleted else None
    return LiveFile(path, size, records, spec, partition, {}, vector)


def test_too_few_small_files_stay() -> None:
    assert choose_groups([file(1000) for _ in range(4)], SETTINGS) == []


def test_enough_small_files_are_merged_and_large_ones_stay() -> None:
    small, large = [file(1000) for _ in range(5)], [file(2 * MIB), file(8 * MIB)]
    assert [{f.path for f in group} for group in choose_groups([*large, *small], SETTINGS)] == [{f.path for f in small}]


def test_each_partition_and_spec_by_itself() -> None:
    files = [file(1000, partition=p, spec=s) for p in ('["a"]', '["b"]') for s in (0, 1) for _ in range(5)]
    groups = choose_groups(files, SETTINGS)
    assert sorted(len(group) for group in groups) == [5] * 4
    assert all(len({(f.spec_id, f.partition_json) for f in group}) == 1 for group in groups)
    assert choose_groups(files[::2], SETTINGS) == []


def test_a_file_much_larger_than_the_others_together_is_left() -> None:
    small, larger = [file(1000, records=10) for _ in range(6)], file(500_000, records=61)
    assert [len(group) for group in choose_groups([*small, larger], SETTINGS)] == [6]
    larger = file(500_000, records=60)
    assert [len(group) for group in choose_groups([*small, larger], SETTINGS)] == [7]


def test_a_group_is_about_one_file() -> None:
    groups = choose_groups([file(MIB) for _ in range(40)], SETTINGS)
    assert [len(group) for group in groups] == [8] * 5


def test_files_of_which_enough_is_deleted() -> None:
    kept, gone, large = file(1000, 100, 29), file(1000, 100, 30), file(7 * MIB, 1000, 400)
    assert choose_groups([kept], SETTINGS) == []
    assert choose_groups([kept, gone, large], SETTINGS) == [(gone, large)]
    # Each as large as a file: each by itself.
    full = [file(16 * MIB, 1000, 500) for _ in range(3)]
    assert choose_groups(full, SETTINGS) == [(one,) for one in full]


@given(
    st.lists(
        st.tuples(st.integers(1, 9 * MIB), st.integers(1, 10_000), st.floats(0, 1), st.integers(0, 1)), max_size=60
    )
)
@settings(max_examples=50, deadline=None)
def test_no_file_twice_and_no_merge_of_one(made: list[tuple[int, int, float, int]]) -> None:
    files = [file(size, rows, int(rows * share), f"[{part}]") for size, rows, share, part in made]
    groups = choose_groups(files, SETTINGS)
    paths = Counter(f.path for group in groups for f in group)
    assert not paths or max(paths.values()) == 1
    assert set(paths) <= {f.path for f in files}
    for group in groups:
        ripe = all(f.vector is not None and f.vector.records >= 0.3 * f.records for f in group)
        assert ripe or len(group) > 1
    # Afterwards few small files are left: each has more rows than all smaller ones together, or there are not many.
    left = [f for f in files if f.path not in paths and f.size < 2 * MIB and f.partition_json == "[0]"]
    rows = sorted(f.live_records for f in left)
    assert len(left) < SETTINGS.small_files or all(rows[at] > sum(rows[:at]) for at in range(1, len(rows)))


@given(randomly=st.randoms(use_true_random=False), largest=st.sampled_from([1, 300]), count=st.integers(100, 500))
@settings(max_examples=20, deadline=None)
def test_a_row_is_written_anew_few_times(randomly: random.Random, largest: int, count: int) -> None:
    commits = [randomly.randint(1, largest) for _ in range(count)]
    files: dict[str, LiveFile] = {}
    rewrites: Counter[str] = Counter()
    for rows in commits:
        new = file(rows * 20, rows)
        files[new.path] = new
        for group in choose_groups(files.values(), SETTINGS):
            merged = file(sum(f.size for f in group), sum(f.records for f in group))
            # The row that was written most often.
            rewrites[merged.path] = 1 + max(rewrites[f.path] for f in group)
            for f in group:
                del files[f.path]
            files[merged.path] = merged
        assert len(files) < SETTINGS.small_files + math.log2(sum(commits))
    assert max(rewrites.values()) <= math.log2(sum(commits))
