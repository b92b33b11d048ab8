"""Finding rows by key in the live data files of a table: which files, which positions, for which of the keys sought.

What cannot hold a key is left out by bounds, files first, then row groups; of the rest only key columns are read. Row
groups are matched many at a time, so that the keys are made into a hash table once and not per file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .bounds import SoughtValues, bound_value, sought_values, statistics_range
from .columns import column_plan
from .deletion_vectors import Positions, read_positions
from .files import LiveFile, TableLayout
from .matching import KeyMatcher
from .places import file_io
from .reading import OpenedFile

__all__ = ["Found", "Segment", "find", "may_hold", "segments_of", "without_deleted"]

# Rows matched at a time: a few columns of this many take some ten megabytes.
_ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Rows found in one file: their positions, ascending, and for each the index of its key among those sought."""

    file: LiveFile
    positions: Positions
    needles: Positions


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Key columns of a run of rows of a file."""

    file: LiveFile
    start: int
    columns: list[pa.ChunkedArray]

    @property
    def rows(self) -> int:
        return len(self.columns[0])


def find(layout: TableLayout, files: Sequence[LiveFile], needles: pa.Table) -> list[Found]:
    """Find the rows that have a key of `needles`, whose columns are the key's and whose rows are distinct.

    Rows that a deletion vector names are not there. A file without a match is not in the result.
    """
    if not needles.num_rows:
        return []
    needles = _typed(layout, needles)
    matcher = KeyMatcher(needles)
    found: dict[str, list[Found]] = {}
    sought = {name: sought_values(needles.column(name)) for name in needles.column_names}
    for segments in _together(_segments(layout, files, sought)):
        for part in _matched(segments, matcher):
            found.setdefault(part.file.path, []).append(part)
    return [live for parts in found.values() if len((live := _live(layout, parts)).positions)]


def may_hold(layout: TableLayout, file: LiveFile, sought: dict[str, SoughtValues | None]) -> bool:
    """Whether, by its bounds, a file can have a row with one of the values sought in each of the columns."""
    plan = column_plan(layout.schema_json)
    for name, values in sought.items():
        field = plan.iceberg.find_field(plan.field_id(name))
        bounds = file.bounds.get(field.field_id)
        if values is None or bounds is None:
            continue
        lower, upper = bound_value(field.field_type, bounds[0]), bound_value(field.field_type, bounds[1])
        if lower is not None and upper is not None and not values.any_within(lower, upper):
            return False
    return True


def without_deleted(
    layout: TableLayout, file: LiveFile, positions: Positions
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of these positions the file's deletion vector does not name."""
    deleted = read_positions(file_io(layout), file)
    if not len(deleted):
        return np.ones(len(positions), dtype=bool)
    at = np.minimum(np.searchsorted(deleted, positions), len(deleted) - 1)
    return np.asarray(deleted[at] != positions)


def _typed(layout: TableLayout, needles: pa.Table) -> pa.Table:
    arrow = column_plan(layout.schema_json).arrow
    return needles.cast(pa.schema([arrow.field(name).with_nullable(nullable=True) for name in needles.column_names]))


def _segments(
    layout: TableLayout, files: Sequence[LiveFile], sought: dict[str, SoughtValues | None]
) -> Iterator[Segment]:
    for file in files:
        if file.live_records and may_hold(layout, file, sought):
            with closing(OpenedFile(layout, file)) as one:
                yield from segments_of(one, sought)


def segments_of(one: OpenedFile, sought: dict[str, SoughtValues | None]) -> Iterator[Segment]:
    """Runs of row groups that may hold the values sought, each read at once, with the columns in which they are."""
    kept = [column for name in sought if (column := one.kept(name)) is not None]
    if len(kept) == len(sought):
        yield Segment(one.file, 0, kept)
        return
    metadata, names = one.metadata, list(sought)
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    starts = np.concatenate(([0], np.cumsum(sizes))).tolist()
    for run in _runs(starts, [_group_may_hold(one, group, sought) for group in range(len(sizes))]):
        columns = one.read(names, run)
        if len(run) == len(sizes):
            one.keep(names, columns)
        yield Segment(one.file, starts[run[0]], columns)


def _runs(starts: Sequence[int], wanted: Sequence[bool]) -> Iterator[list[int]]:
    """Row groups that are wanted and follow on each other, up to as many rows as are matched at a time."""
    run: list[int] = []
    for group, is_wanted in enumerate(wanted):
        if is_wanted:
            run.append(group)
            if starts[group + 1] - starts[run[0]] < _ROWS_AT_ONCE:
                continue
        if run:
            yield run
            run = []
    if run:
        yield run


def _group_may_hold(one: OpenedFile, group: int, sought: dict[str, SoughtValues | None]) -> bool:
    for name, values in sought.items():
        column = one.column(name)
        if values is None or column is None:
            continue
        limits = statistics_range(column.type, one.metadata.row_group(group).column(column.leaf))
        if limits is not None and not values.any_within(*limits):
            return False
    return True


def _together(segments: Iterator[Segment]) -> Iterator[list[Segment]]:
    waiting: list[Segment] = []
    for segment in segments:
        waiting.append(segment)
        if sum(one.rows for one in waiting) >= _ROWS_AT_ONCE:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _matched(segments: list[Segment], matcher: KeyMatcher) -> Iterator[Found]:
    width = len(segments[0].columns)
    columns = [
        pa.chunked_array([chunk for segment in segments for chunk in segment.columns[index].chunks])
        if len(segments) > 1
        else segments[0].columns[index]
        for index in range(width)
    ]
    rows, needles = matcher.match(columns)
    starts = np.concatenate(([0], np.cumsum([segment.rows for segment in segments])))
    cuts = np.searchsorted(rows, starts)
    for number, segment in enumerate(segments):
        part = slice(cuts[number], cuts[number + 1])
        if part.stop > part.start:
            yield Found(segment.file, rows[part] - starts[number] + segment.start, needles[part])


def _live(layout: TableLayout, parts: list[Found]) -> Found:
    file = parts[0].file
    positions = np.concatenate([part.positions for part in parts])
    needles = np.concatenate([part.needles for part in parts])
    live = without_deleted(layout, file, positions)
    return Found(file, positions[live], needles[live])
