"""Between a copy's plan and what the store keeps of it: to resume a copy, and to know what the copy has seen."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..initial_copy.handoff import CopiedRange, Handoff
from ..initial_copy.ranges import CopyPlan, CopyRange, KeyBounds
from ..lsn import Lsn
from ..pgtypes.registry import conversion_for
from ..postgres.snapshots import Snapshot
from ..schema import ReplicatedTableSchema
from ..stores.contract import PipelineStore
from ..stores.records import CopyBounds, CopyRecord, CopyStart

__all__ = ["copy_start", "handoff_of", "has_all_parts", "is_of_copy", "part_number", "ranges_left", "stored_handoff"]

_FIRST_NUMBER = 1 << 32
"""Part numbers below it are those of earlier versions, which numbered the parts of each copy from 0."""


def copy_start(plan: CopyPlan, start: Lsn, snapshot_lsn: Lsn) -> CopyStart:
    """What is stored before a plan's first row is read."""
    bounds = (None,) if plan.one_snapshot else tuple(_bounds(part) for part in plan.ranges)
    return CopyStart(start, snapshot_lsn, plan.one_snapshot, bounds)


def ranges_left(plan: CopyPlan, start: CopyStart, done: Sequence[CopyRecord]) -> list[tuple[int, CopyRange]]:
    """The ranges of an interrupted copy that are left to be read, cut as they were then. `plan` is one range of all."""
    finished = {record.position for record in done}
    (whole,) = plan.ranges
    count = len(start.ranges)
    rows = None if whole.estimated_rows is None else whole.estimated_rows // count
    share = replace(whole, estimated_rows=rows, estimated_bytes=whole.estimated_bytes // count)
    return [
        (position, _range(share, bounds)) for position, bounds in enumerate(start.ranges) if position not in finished
    ]


def has_all_parts(records: Sequence[CopyRecord], parts: frozenset[int]) -> bool:
    """Whether a destination has every part of a copy that is on record as finished; if not, it was put back.

    The ranges of a part have one snapshot, and the part bears the number of the first of them.
    """
    first: dict[str, int] = {}
    for record in records:
        if record.rows >= 0:
            first[record.snapshot] = min(record.position, first.get(record.snapshot, record.position))
    return parts.issuperset(_number(position, snapshot) for snapshot, position in first.items())


def part_number(records: Iterable[CopyRecord]) -> int:
    """Return the number under which a destination records the part that these ranges are written as.

    It is made of the first range and its snapshot, so that the parts of two copies of a table have different numbers. A
    store that was restored from a backup is thereby known not to be that of the copy at the destination.
    """
    first = min(records, key=lambda record: record.position)
    return _number(first.position, first.snapshot)


def is_of_copy(records: Sequence[CopyRecord], parts: frozenset[int], *, accept_old_numbers: bool = False) -> bool:
    """Return whether the parts that a destination has are all of the copy that is on record.

    `accept_old_numbers`: parts that an earlier version has numbered, which may be of any copy, count as its own.
    """
    known = {_number(record.position, record.snapshot) for record in records}
    return all(part in known or (accept_old_numbers and part < _FIRST_NUMBER) for part in parts)


def _number(position: int, snapshot: str) -> int:
    return _FIRST_NUMBER + zlib.crc32(f"{position} {snapshot}".encode())


def handoff_of(schema: ReplicatedTableSchema, start: CopyStart, records: Sequence[CopyRecord]) -> Handoff:
    """What the copy has seen, by its records."""
    ordered = sorted(records, key=lambda record: record.position)
    first = ordered[0].bounds
    if first is None:
        return Handoff((CopiedRange(None, None, Snapshot.parse(ordered[0].snapshot)),), start.snapshot_lsn)
    ranges = tuple(_copied(record) for record in ordered)
    column = schema.table.column(first.column)
    return Handoff(ranges, start.snapshot_lsn, first.column, conversion_for(column.type, column.typmod))


def stored_handoff(store: PipelineStore, schema: ReplicatedTableSchema, position: Lsn) -> Handoff | None:
    """The same from the store; None for a table that was not copied, or is past what its copy has seen.

    `schema` is the version in force at `position`: the copy's own, where ranges are cut by a column of it.
    """
    known = store.get_copy(schema.table.id)
    if known is None or not known[1] or position >= known[0].snapshot_lsn:
        return None
    return handoff_of(schema, *known)


def _copied(record: CopyRecord) -> CopiedRange:
    assert record.bounds is not None
    return CopiedRange(record.bounds.lower, record.bounds.upper, Snapshot.parse(record.snapshot))


def _bounds(part: CopyRange) -> CopyBounds | None:
    bounds = part.bounds
    return CopyBounds(bounds.column, bounds.type, bounds.lower, bounds.upper) if isinstance(bounds, KeyBounds) else None


def _range(template: CopyRange, bounds: CopyBounds | None) -> CopyRange:
    cut = None if bounds is None else KeyBounds(bounds.column, bounds.type, bounds.lower, bounds.upper)
    return replace(template, bounds=cut)
