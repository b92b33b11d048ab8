"""Which column is which: the columns of a Relation message, which has no attnums, and those known of the table.

Three moments matter: the version before the message, the message, and the catalog now, which may be further ahead. What
is certain:

- attnums are given in ascending order and never twice, and the message lists columns in that order;
- a column that was there before and is there now was there at the message;
- of the columns that are there now and were not before, those at the message are the lower ones;
- a column that came and went in between has left a gap in the attnums.

So counting often leaves one possibility only. Where it leaves several, names make the best guess of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..pgoutput.messages import RelationColumn
from ..schema import Column

__all__ = ["Alignment", "Known", "align"]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the table's columns, by attnum."""

    before: Mapping[int, Column]
    """The columns before the message, sent or not."""
    sent_before: frozenset[int]
    now: Mapping[int, Column]
    """The columns now, sent or not."""
    new_are_sent: bool
    """Whether added columns are sent by themselves: the publication has no column list for the table."""
    generated_are_sent: bool
    natts_before: int
    """The highest attnum given by then, or a lower one."""
    natts_now: int | None
    """The highest attnum given by now; None if not known."""

    def sent_new(self) -> list[int]:
        """Columns that came since, and are sent if they were there."""
        return [
            attnum
            for attnum, column in sorted(self.now.items())
            if attnum not in self.before and self.new_are_sent and (self.generated_are_sent or not column.generated)
        ]

    def gaps(self) -> list[int]:
        """Attnums of columns that came and went since, as far as they are known."""
        if not self.new_are_sent:
            return []
        highest = max([*self.now, self.natts_now or 0])
        return [attnum for attnum in range(self.natts_before + 1, highest + 1) if attnum not in self.now]


@dataclass(frozen=True, slots=True)
class Alignment:
    """An attnum for each of the message's columns, ascending. `certain`: no other is possible."""

    attnums: tuple[int, ...]
    certain: bool


def align(columns: Sequence[RelationColumn], known: Known) -> Alignment:
    """Find the attnums of a Relation message's columns."""
    there = sorted(known.sent_before & known.now.keys())
    gone = sorted(known.sent_before - known.now.keys())
    new, gaps = known.sent_new(), known.gaps()
    missing = len(columns) - len(there)
    others = [*gone, *new, *gaps]
    # A column that came and went behind the last one there is now would have left no gap that we see.
    all_seen = known.natts_now is not None or not known.new_are_sent
    if missing == 0:
        found = there
    elif not gone and not gaps and 0 < missing <= len(new):
        found = there + new[:missing]
    elif missing == len(others) and all_seen:
        found = there + others
    else:
        return _guess(columns, known)
    attnums = tuple(sorted(found))
    if any(_is_anothers(column, attnum, known) for column, attnum in zip(columns, attnums, strict=True)):
        return _guess(columns, known)
    return Alignment(attnums, certain=True)


def _is_anothers(column: RelationColumn, attnum: int, known: Known) -> bool:
    """Whether the name is not this column's, before or now, but that of another: then the column list has changed."""
    own = {side[attnum].name for side in (known.before, known.now) if attnum in side}
    others = (c.name for side in (known.before, known.now) for c in side.values() if c.attnum != attnum)
    return bool(own) and column.name not in own and column.name in others


def _guess(columns: Sequence[RelationColumn], known: Known) -> Alignment:
    named = _by_name(columns, known.now) or _by_name(columns, known.before)
    if named is not None:
        return Alignment(named, _only_the_list_changed(columns, named, known))
    # Any ascending attnums are possible ones: what was there first, then what came, then what nobody knows.
    candidates = [*sorted(known.sent_before & known.now.keys()), *known.sent_new(), *known.gaps()]
    candidates += sorted(known.sent_before - known.now.keys())
    highest = max([*known.before, *known.now, known.natts_before, known.natts_now or 0])
    candidates += range(highest + 1, highest + 1 + len(columns))
    return Alignment(tuple(sorted(candidates[: len(columns)])), certain=False)


def _by_name(columns: Sequence[RelationColumn], side: Mapping[int, Column]) -> tuple[int, ...] | None:
    """The attnums of columns of the same name and type, if all have one and they ascend."""
    known = {(c.name, c.type.oid, c.typmod): attnum for attnum, c in side.items()}
    found = [known.get((c.name, c.type_oid, c.typmod), 0) for c in columns]
    return tuple(found) if all(found) and found == sorted(found) else None


def _only_the_list_changed(columns: Sequence[RelationColumn], attnums: Sequence[int], known: Known) -> bool:
    """Whether the table is now as it was before, so that only the columns that are sent can be others."""
    unchanged = known.before.keys() == known.now.keys() and all(
        (c.name, c.type.oid, c.typmod) == (known.now[a].name, known.now[a].type.oid, known.now[a].typmod)
        for a, c in known.before.items()
    )
    return unchanged and len(attnums) == len(columns)
