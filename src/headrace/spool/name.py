"""The names in a spool. They are its manifest: what is published and up to where, read from one listing.

    00000000016B3748-00000000016B9F10.0001-0001.arrow    a segment: from, to, part, parts
    00000000016B9F10-00000000016C0000.idle               nothing was committed between the two positions

A segment holds every transaction whose commit record starts at or after `start` and before `end`; segments follow each
other without a hole. A transaction too large for one segment gives several parts of one range, which count once all of
them are there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..lsn import Lsn

__all__ = ["IdleMark", "SegmentName", "parse_name"]

_SEGMENT = re.compile(r"([0-9A-F]{16})-([0-9A-F]{16})\.(\d{4,})-(\d{4,})\.arrow")
_IDLE = re.compile(r"([0-9A-F]{16})-([0-9A-F]{16})\.idle")


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """A segment's range [start, end) of commit positions, and which part of how many it is (from 1)."""

    start: Lsn
    end: Lsn
    part: int = 1
    parts: int = 1

    def __hash__(self) -> int:
        # Looked up by the thousand; few have the same start.
        return int.__hash__(self.start)

    def __str__(self) -> str:
        return f"{int(self.start):016X}-{int(self.end):016X}.{self.part:04d}-{self.parts:04d}.arrow"


@dataclass(frozen=True, slots=True, order=True)
class IdleMark:
    """The last segment ends at `end`, and up to `covered` the server had nothing more for us."""

    end: Lsn
    covered: Lsn

    def __str__(self) -> str:
        return f"{int(self.end):016X}-{int(self.covered):016X}.idle"


def parse_name(name: str) -> SegmentName | IdleMark | None:
    """What a file name says; None for a file that is not the spool's."""
    if match := _SEGMENT.fullmatch(name):
        start, end = Lsn(int(match[1], 16)), Lsn(int(match[2], 16))
        return SegmentName(start, end, int(match[3]), int(match[4]))
    if match := _IDLE.fullmatch(name):
        return IdleMark(Lsn(int(match[1], 16)), Lsn(int(match[2], 16)))
    return None
