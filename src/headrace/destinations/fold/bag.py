"""The fold of tables without a key: rows that are equal are interchangeable, so only how many there are counts."""

from __future__ import annotations

import numpy as np

from ...errors import ProtocolError
from .changes import Indexes, ReadChanges
from .codes import Codes, combined_codes, value_codes
from .effects import Effects, sorted_effects
from .output import APPEND, DELETE, Outcome, struct_of, taken

__all__ = ["appended", "fold_bag", "row_codes", "survivors"]


def fold_bag(changes: ReadChanges) -> Outcome:
    """Per value what is left of the rows that came and went: rows to append, or the number of equal ones to delete."""
    if changes.insert.all():
        return appended(changes)
    if not changes.whole_old[~changes.insert].all():
        raise ProtocolError(
            "an update or delete came without its old row, in a table without key",
            hint="give the table a primary key, or REPLICA IDENTITY FULL, and copy it again",
        )
    old, new = row_codes(changes)
    effects = sorted_effects(changes, (~changes.insert, old), (~changes.delete, new))
    kept, count = survivors(effects)
    change, arrives = effects.change[kept], effects.arrives[kept]
    side = np.where(arrives, change, change + len(changes))
    row_type = changes.row_type
    children = [taken(changes.sides(position), side) for position in range(row_type.num_fields)]
    return Outcome(
        op=np.where(arrives, APPEND, DELETE).astype(np.uint8),
        change=change,
        row=struct_of(list(row_type), children),
        count=count,
    )


def appended(changes: ReadChanges) -> Outcome:
    """Every change as it is: inserts of rows that were not there."""
    size = len(changes)
    return Outcome(np.full(size, APPEND, dtype=np.uint8), np.arange(size), changes.table.column("row"))


def row_codes(changes: ReadChanges) -> tuple[Codes, Codes]:
    """Codes of the whole old rows and of the new ones: equal where the rows are."""
    positions = range(changes.row_type.num_fields)
    codes = combined_codes([value_codes(changes.sides(position)) for position in positions])
    return codes[len(changes) :], codes[: len(changes)]


def survivors(effects: Effects) -> tuple[Indexes, Indexes]:
    """Of effects grouped by value: the last arrivals, as many as came more than went; or, where more went, the last
    departure, with the number that is missing. The second array has these numbers, 1 for arrivals.
    """
    if not len(effects):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    net_of_group = np.add.reduceat(np.where(effects.arrives, 1, -1), effects.starts)
    sizes = effects.ends - effects.starts + 1
    net = np.repeat(net_of_group, sizes)
    later_arrivals = _later(effects.arrives, effects.ends, sizes)
    later_departures = _later(~effects.arrives, effects.ends, sizes)
    kept = np.where(effects.arrives, later_arrivals < net, (net < 0) & (later_departures == 0))
    return np.flatnonzero(kept), np.maximum(-net[kept], 1)


def _later(marked: np.ndarray[tuple[int], np.dtype[np.bool_]], ends: Indexes, sizes: Indexes) -> Indexes:
    """How many marked effects come later in the group."""
    seen = np.cumsum(marked)
    return np.asarray(np.repeat(seen[ends], sizes) - seen)
