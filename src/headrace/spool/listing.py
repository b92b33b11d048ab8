"""What lies in a spool, by its names, remembered from one listing to the next.

A spool is listed many times a second and may hold thousands of segments, of which only the newest are new. So names are
read once, when they first appear, and segments are put together once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..lsn import Lsn
from .contract import Entry, Place
from .name import IdleMark, SegmentName, parse_name

__all__ = ["Listed", "Listing", "Segment"]

_Range = tuple[Lsn, Lsn, int]
"""Where a segment starts and ends, and of how many parts it is."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A published range with all its parts, in order."""

    start: Lsn
    end: Lsn
    names: tuple[SegmentName, ...]
    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class Listed:
    """One listing."""

    segments: tuple[Segment, ...] = ()
    """Those of which every part is there, in order."""
    parts: Mapping[str, tuple[SegmentName, Entry]] = field(default_factory=dict)
    """Of all segments, whole or not, by the text of the name."""
    marks: frozenset[IdleMark] = frozenset()


class Listing:
    """Lists a place. Used by several threads."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._found: dict[str, Entry] = {}
        self._whole: dict[_Range, Segment] = {}
        """In order."""
        self._last = Listed()

    @property
    def last(self) -> Listed:
        """The place as it was at the last look."""
        return self._last

    def look(self) -> Listed:
        """The place as it is now."""
        found = {entry.name: entry for entry in self._place.entries()}
        with self._lock:
            if found.keys() != self._found.keys():
                self._take(found)
            return self._last

    def _take(self, found: dict[str, Entry]) -> None:
        came = {text: parse_name(text) for text in found.keys() - self._found.keys()}
        went = {text: parse_name(text) for text in self._found.keys() - found.keys()}
        parts = {**self._last.parts}
        for text in went:
            parts.pop(text, None)
        parts |= {text: (name, found[text]) for text, name in came.items() if isinstance(name, SegmentName)}
        marks = self._last.marks - {*went.values()} | {name for name in came.values() if isinstance(name, IdleMark)}
        touched = {_range(n) for n in (*came.values(), *went.values()) if isinstance(n, SegmentName)}
        for one in touched:
            self._whole.pop(one, None)
        for segment in filter(None, (_put_together(one, parts) for one in sorted(touched))):
            self._add(segment)
        self._found = found
        self._last = Listed(tuple(self._whole.values()), parts, marks)

    def _add(self, segment: Segment) -> None:
        last = next(reversed(self._whole.values()), segment)
        self._whole[_range(segment.names[0])] = segment
        if (segment.start, segment.end) < (last.start, last.end):
            # Rare: listed late.
            self._whole = dict(sorted(self._whole.items()))


def _put_together(wanted: _Range, parts: Mapping[str, tuple[SegmentName, Entry]]) -> Segment | None:
    """None: parts of it are missing."""
    start, end, count = wanted
    names = tuple(SegmentName(start, end, part, count) for part in range(1, count + 1))
    there = [parts[text][1] for name in names if (text := str(name)) in parts]
    if len(there) < count:
        return None
    return Segment(start, end, names, sum(entry.size for entry in there), max(entry.modified for entry in there))


def _range(name: SegmentName) -> _Range:
    return name.start, name.end, name.parts
