"""How far a copy is said to be."""

from __future__ import annotations

from headrace.pipeline.copy_progress import CopyProgress, CopyView
from headrace.spark.part import PartReport


def test_nothing_is_said_before_a_copy_begins() -> None:
    assert CopyProgress().view() == CopyView()


def test_ranges_count_as_their_tasks_end() -> None:
    progress = CopyProgress()
    progress.begin(4, 1000)
    reports: dict[int, PartReport] = {}
    progress.watch(lambda: reports, 1)
    assert progress.view().seconds_left is None
    reports[2] = PartReport(rows=250, bytes=9)
    view = progress.view()
    assert (view.ranges, view.ranges_done, view.rows, view.bytes, view.estimated_rows) == (4, 1, 250, 9, 1000)
    assert view.seconds_left is not None
    assert view.seconds_left >= view.seconds


def test_a_finished_part_counts_once() -> None:
    progress = CopyProgress()
    progress.begin(2, None)
    progress.watch(lambda: {0: PartReport(rows=5), 1: PartReport(rows=6)}, 1)
    progress.part_done(PartReport(rows=11), 2)
    progress.end()
    view = progress.view()
    assert (view.ranges_done, view.rows, view.seconds_left) == (2, 11, None)


def test_a_resumed_copy_begins_where_it_was() -> None:
    progress = CopyProgress()
    progress.begin(10, None, done=7)
    assert progress.view().ranges_done == 7
