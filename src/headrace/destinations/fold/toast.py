"""Where the values of columns are that an update did not send because their TOASTed value stayed as it was.

Each such value stands in an earlier state of the same row: its predecessor, through any number of updates and key
changes. Either a change of the batch sent it, or the destination has it, under the key the row had before the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .changes import Indexes, Mask, ReadChanges, UnchangedCells
from .effects import Effects

__all__ = ["Resolution", "resolve"]


@dataclass(frozen=True, slots=True, eq=False)
class Resolution:
    """For the rows that are alive at the end, in the order asked for."""

    sources: dict[int, tuple[Indexes, Mask]]
    """By position of the column: the change that sent the value, and where none did (the destination has it)."""
    earliest: Indexes
    """The effect that the row's first state in the batch comes from, where a value is at the destination; else -1."""

    def unresolved(self) -> pa.ListArray:
        """Per row the positions of the columns whose value the destination has; NULL where there are none."""
        count = len(self.earliest)
        rows = [np.flatnonzero(missing) for _, missing in self.sources.values()]
        if not sum(map(len, rows)):
            return pa.nulls(count, pa.list_(pa.int32()))
        columns = np.repeat(np.array(list(self.sources), dtype=np.int32), [len(part) for part in rows])
        row = np.concatenate(rows)
        per_row = np.bincount(row, minlength=count)
        offsets = np.concatenate(([0], np.cumsum(per_row))).astype(np.int32)
        values = pa.array(columns[np.lexsort((columns, row))])
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(per_row == 0))


def resolve(
    changes: ReadChanges, effects: Effects, moved: Mask, unchanged: UnchangedCells | None, ends: Indexes
) -> Resolution:
    """Trace the unchanged columns of the rows that these effects (arrivals) leave behind.

    `moved` says which changes are key changes: their old row left another group.
    """
    earliest = np.full(len(ends), -1, dtype=np.int64)
    sources: dict[int, tuple[Indexes, Mask]] = {}
    if unchanged is None:
        return Resolution(sources, earliest)
    place = np.full(2 * len(changes), -1, dtype=np.int64)
    place[effects.slot] = np.arange(len(effects))
    lacking = place[2 * changes.rank[unchanged.changes] + 1]
    before = _predecessors(effects, place, moved, lacking)
    # Each effect points at the one that has the value; at itself where it sent it, or where nothing came before.
    pointer = np.arange(len(effects))
    lacks = np.zeros(len(effects), dtype=bool)
    for column in np.unique(unchanged.columns):
        of_column = unchanged.columns == column
        at = lacking[of_column]
        pointer[at] = before[of_column]
        _jump(pointer, at)
        lacks[at] = True
        source = pointer[ends]
        missing = lacks[source]
        earliest = np.where(missing, source, earliest)
        sources[int(column)] = (effects.change[source], missing)
        pointer[at], lacks[at] = at, False
    return Resolution(sources, earliest)


def _predecessors(effects: Effects, place: Indexes, moved: Mask, at: Indexes) -> Indexes:
    """The effect that made the earlier state of the same row; the effect itself where the batch has none."""
    # The row came from where the other half of its key change took it away.
    here = np.where(moved[effects.change[at]], place[effects.slot[at] - 1], at)
    is_start = np.zeros(len(effects), dtype=bool)
    is_start[effects.starts] = True
    # The effect before it is an arrival: only a row that is there is updated.
    return np.where(is_start[here], at, here - 1)


def _jump(pointer: Indexes, at: Indexes) -> None:
    """Follow the pointers of these effects to the end, in as many rounds as the longest chain has binary digits."""
    while True:
        further = pointer[pointer[at]]
        if (further == pointer[at]).all():
            return
        pointer[at] = further
