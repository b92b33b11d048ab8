"""What changes do to groups of rows: a row leaves a group, a row arrives in one. Sorted by group, then by time.

A group is a key, or a row's whole value in a table without key. A change has at most two effects, and the old row
leaves before the new one arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .changes import Indexes, Mask, ReadChanges
from .codes import Codes

__all__ = ["Effects", "sorted_effects"]


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """All arrays but `starts` and `ends` are per effect; those are per group: its first effect and its last one."""

    group: Codes
    slot: Indexes
    """Unique, ascending in time: twice the change's rank, and one more for the row that arrives."""
    change: Indexes
    arrives: Mask
    starts: Indexes
    ends: Indexes

    def __len__(self) -> int:
        return len(self.slot)


def sorted_effects(changes: ReadChanges, leaving: tuple[Mask, Codes], arriving: tuple[Mask, Codes]) -> Effects:
    """The effects of changes, of which those of a mask have an old row that leaves, or a new one that arrives."""
    gone, new = np.flatnonzero(leaving[0]), np.flatnonzero(arriving[0])
    slots = np.concatenate((2 * changes.rank[gone], 2 * changes.rank[new] + 1))
    groups = np.concatenate((leaving[1][gone], arriving[1][new]))
    # One number holds both (changes are far fewer than 2^30), and numbers sort several times as fast as pairs.
    bits = max((2 * len(changes)).bit_length(), 1)
    packed = (groups << bits) | slots
    packed.sort()
    group, slot = packed >> bits, packed & ((1 << bits) - 1)
    change = slot >> 1
    if not changes.is_ordered:
        change = changes.in_order[change]
    first = np.ones(len(group), dtype=bool)
    np.not_equal(group[1:], group[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], len(group)) - 1 if len(starts) else starts
    return Effects(group, slot, change, (slot & 1).astype(bool), starts, ends)
