"""Which lists of expired files are due: by age, all that are at once, and by the space limit, the oldest first."""

from __future__ import annotations

import pytest

from headrace.config.iceberg import MaintenanceConfig
from headrace.destinations.iceberg.expired_files import FileList, due_lists

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NOW_MS = 1_000 * HOUR_MS


def lists(*expired: tuple[float, int]) -> list[FileList]:
    """Make lists by their ages in hours and their sizes, oldest first."""
    return [FileList(f"list-{age}", int(NOW_MS - age * HOUR_MS), size) for age, size in expired]


@pytest.mark.parametrize(
    ("ages", "due"),
    [
        ((), 0),
        ((5.99, 1), 0),
        # Over, but not by ten minutes.
        ((6.0, 3), 0),
        ((6.1, 6.0, 3), 0),
        # The oldest is, and takes along all that are over.
        ((6.2, 6.1, 6.0, 5.99, 3), 3),
    ],
)
def test_lists_are_due_after_the_retention_time(ages: tuple[float, ...], due: int) -> None:
    given = lists(*((age, 1) for age in ages))
    assert due_lists(given, MaintenanceConfig(), NOW_MS) == (given[:due], [])


def test_without_retention_everything_is_due() -> None:
    given = lists((1, 1), (0, 1))
    assert due_lists(given, MaintenanceConfig(retention_s=0), NOW_MS) == (given, [])


@pytest.mark.parametrize(
    ("limit", "exceeding"),
    # Down to nine tenths of the limit, so that the next list does not exceed it at once.
    [(None, 0), (100, 0), (99, 1), (89, 1), (88, 2), (1, 4), (0, 4)],
)
def test_the_oldest_lists_exceed_the_space_limit(limit: int | None, exceeding: int) -> None:
    given = lists((4, 20), (3, 20), (2, 20), (1, 40))
    settings = MaintenanceConfig(retention_bytes=limit)
    assert due_lists(given, settings, NOW_MS) == ([], given[:exceeding])


def test_what_is_over_does_not_count_against_the_limit_and_leaves_first() -> None:
    given = lists((6.1, 1000), (3, 60), (1, 30))
    assert due_lists(given, MaintenanceConfig(retention_bytes=90), NOW_MS) == ([], [])
    assert due_lists(given, MaintenanceConfig(retention_bytes=80), NOW_MS) == (given[:1], given[1:2])
