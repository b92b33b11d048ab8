"""Which data files are worth writing anew, and which of them together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..compaction_settings import CompactionSettings
from ..files import LiveFile

__all__ = ["Group", "choose_groups"]

Group = tuple[LiveFile, ...]

# A file that is smaller than this share of the target is small.
_SMALL = 1 / 4


def choose_groups(files: Iterable[LiveFile], settings: CompactionSettings) -> list[Group]:
    """Groups of files of one partition each; no file is in two of them."""
    partitions: dict[tuple[int, str], list[LiveFile]] = defaultdict(list)
    for file in files:
        partitions[file.spec_id, file.partition_json].append(file)
    groups: list[Group] = []
    for members in partitions.values():
        merged = _small_files(members, settings)
        taken = {file.path for group in merged for file in group}
        groups += merged
        groups += _mostly_deleted([file for file in members if file.path not in taken], settings)
    return groups


def _small_files(files: Iterable[LiveFile], settings: CompactionSettings) -> list[Group]:
    small = [file for file in files if file.size < settings.target_file_bytes * _SMALL]
    small.sort(key=lambda file: (file.live_records, file.path))
    groups = []
    while len(small) >= settings.small_files:
        group = _doubling(small, settings.target_file_bytes)
        if not group:
            break
        groups.append(group)
        small = small[len(group) :]
    return groups


def _doubling(small: list[LiveFile], target: int) -> Group:
    """The longest run of the smallest files in which the largest has no more rows than the others together.

    So each time that a row is written anew, its file has at least twice the rows of the one before: a row of a
    partition of n rows is written log2(n) times at most. And of the files left over each has more rows than all smaller
    ones together: there are few. A run that fills a file ends there; what it gives is small no more.
    """
    rows, size, longest = 0, 0.0, 0
    for place, file in enumerate(small):
        if size >= target:
            return tuple(small[:place])
        if place and file.live_records <= rows:
            longest = place + 1
        rows += file.live_records
        size += _live_size(file)
    return tuple(small[:longest])


def _mostly_deleted(files: Iterable[LiveFile], settings: CompactionSettings) -> list[Group]:
    """Files of which enough is deleted, as many together as fill one."""
    groups: list[list[LiveFile]] = []
    size = 0.0
    for file in files:
        if file.vector is None or file.vector.records < settings.deleted_ratio * file.records:
            continue
        if not groups or size + _live_size(file) > settings.target_file_bytes:
            groups.append([])
            size = 0.0
        groups[-1].append(file)
        size += _live_size(file)
    return [tuple(group) for group in groups]


def _live_size(file: LiveFile) -> float:
    return file.size * file.live_records / max(file.records, 1)
