"""The hand-off from copy to stream: which changes the copy has not seen.

A change is due iff its transaction is not visible in the snapshot its row was copied under. With key ranges each range
has its own, and the two halves of a key change are judged apart: the old key may be due where the new one is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import KeyRangesOvertaken
from ..lsn import Lsn
from ..pgtypes.contract import Conversion
from ..postgres.snapshots import Snapshot

__all__ = ["CopiedRange", "Handoff"]

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """Rows with `lower` <= key < `upper`, in Postgres's text (None is open), as the snapshot shows them."""

    lower: str | None
    upper: str | None
    snapshot: Snapshot


@dataclass(frozen=True)
class Handoff:
    """What a table's copy has seen: the ranges, ascending and without a hole, or one for the whole table.

    From `until` on every change is due: `until` is a WAL position after the last snapshot was taken.
    """

    ranges: tuple[CopiedRange, ...]
    until: Lsn
    key: str | None = None
    """The column the ranges are cut by; None for one snapshot."""
    conversion: Conversion | None = None
    """Of that column."""

    def due(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The changes that are not in the copy. A key change of which one half is due becomes that half.

        Raises KeyRangesOvertaken where a half cannot stand alone: its row was copied nowhere, and the change lacks
        TOASTed values that it did not touch.
        """
        xids = changes.column("xid").to_numpy().astype(np.uint32)
        if self.key is None:
            return changes.filter(pa.array(~self.ranges[0].snapshot.visible(xids)))
        some = self.may_be_due(xids)
        if not some.all():
            # What all ranges have seen may be older than the key: then it has another name, or another type.
            changes, xids = changes.filter(pa.array(some)), xids[some]
        if not changes.num_rows:
            return changes
        new, old = self._keys(changes)
        seen_new = self._seen(new, xids)
        seen_old = self._seen(old, xids)
        moved = _is(changes, "op", "U") & ~(seen_new == seen_old)
        if not moved.any():
            gone = np.where(_is(changes, "op", "D"), seen_old, seen_new)
            return changes.filter(pa.array(~gone))
        return _halves(changes, seen_new, seen_old).filter(pa.array(~(seen_new & seen_old)))

    def may_be_due(self, xids: npt.NDArray[np.uint32]) -> _Mask:
        """Which transactions some range has not seen."""
        seen = [part.snapshot.visible(xids) for part in self.ranges]
        mask: _Mask = ~np.logical_and.reduce(seen)
        return mask

    def statement_due(self, xid: int) -> bool:
        """Whether a TRUNCATE or DDL is not in the copy. Raises KeyRangesOvertaken if only some ranges have it."""
        one = np.array([xid], dtype=np.uint32)
        seen = {bool(part.snapshot.visible(one)[0]) for part in self.ranges}
        if len(seen) > 1:
            msg = "the table was truncated or altered between the copies of two of its ranges"
            raise KeyRangesOvertaken(msg)
        return not seen.pop()

    def _keys(self, changes: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """The key after and before each change; where only one side was sent, both are that side."""
        row = pc.struct_field(changes.column("row"), self.key)
        old = pc.struct_field(changes.column("old"), self.key)
        return pc.coalesce(row, old), pc.coalesce(old, row)

    def _seen(self, keys: pa.Array, xids: npt.NDArray[np.uint32]) -> _Mask:
        if keys.null_count:
            msg = f"a key in column {self.key} has no place in Arrow's order (infinity, or before the year 1)"
            raise KeyRangesOvertaken(msg)
        number = np.searchsorted(self._lower_bounds, _sortable(keys), side="right")
        seen = np.zeros(len(xids), dtype=bool)
        for index in np.unique(number).tolist():
            rows = number == index
            seen[rows] = self.ranges[index].snapshot.visible(xids[rows])
        return seen

    @cached_property
    def _lower_bounds(self) -> npt.NDArray[np.generic]:
        """Of all ranges but the first, which is open below."""
        assert self.conversion is not None
        bounds = self.conversion.from_text(pa.array([part.lower for part in self.ranges[1:]], pa.string())).values
        if bounds.null_count:
            msg = f"a bound of column {self.key} has no place in Arrow's order"
            raise KeyRangesOvertaken(msg)
        return _sortable(bounds)


def _sortable(keys: pa.Array) -> npt.NDArray[np.generic]:
    """Integers and instants as integers; uuids as their text, whose order is theirs."""
    if pa.types.is_string(keys.type):
        return np.asarray(keys.to_numpy(zero_copy_only=False), dtype="U36")
    if pa.types.is_timestamp(keys.type):
        keys = keys.cast(pa.int64())
    return np.asarray(keys.to_numpy(zero_copy_only=False))


def _halves(changes: pa.RecordBatch, seen_new: _Mask, seen_old: _Mask) -> pa.RecordBatch:
    """Key changes with one half in the copy become a delete of the old key or an insert of the new one."""
    update = _is(changes, "op", "U")
    only_delete, only_insert = update & seen_new & ~seen_old, update & seen_old & ~seen_new
    if (only_insert & pc.is_valid(changes.column("unchanged")).to_numpy(zero_copy_only=False)).any():
        msg = "a key change moved a row to a range copied earlier, without its unchanged TOASTed values"
        raise KeyRangesOvertaken(msg)
    kind = pc.if_else(pa.array(only_delete), "D", pc.if_else(pa.array(only_insert), "I", changes.column("op")))
    replace: dict[str, Callable[[pa.Array], pa.Array]] = {
        "op": lambda _: kind,
        "row": lambda rows: _without(rows, only_delete),
        "unchanged": lambda values: _without(values, only_delete),
        "old": lambda rows: _without(rows, only_insert),
        "old_kind": lambda values: _without(values, only_insert),
    }
    names = changes.schema.names
    columns = [replace.get(name, lambda values: values)(changes.column(name)) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=changes.schema)


def _without(values: pa.Array, rows: _Mask) -> pa.Array:
    """The array with NULL in these rows."""
    return values.take(pa.array(np.arange(len(values)), mask=rows)) if rows.any() else values


def _is(changes: pa.RecordBatch, column: str, letter: str) -> _Mask:
    mask: _Mask = pc.equal(changes.column(column), letter).to_numpy(zero_copy_only=False)
    return mask
