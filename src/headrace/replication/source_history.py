"""Detects a source that went back in time: a failover to a standby that lags, or a restore of an earlier state.

A spool that is ahead of its source would make every later commit below its end disappear: the server skips what lies
before the start position, without an error. So the spool records which history it was read from, in a file of its own
beside the segments, and each connection is compared with that record before it starts.

    source.json    {"timeline": 2, "ancestors": [[1, "0/3000150"]], "confirmed": "0/30559A0"}

Three facts are compared. The server's WAL must reach the end of the spool. The server's timeline must be the recorded
one, or a descendant that branched off behind the end of the spool. On the same timeline the slot's
`confirmed_flush_lsn` must not be below one that the server is known to have written to disk.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import structlog

from ..errors import SourceInRecovery, SourceWentBack, SpoolCorrupt
from ..lsn import INVALID_LSN, Lsn
from ..postgres.slots import SlotState
from ..spool.contract import Place
from ..spool.place import publish_json, read_json

__all__ = ["ServerPosition", "SourceHistory", "SourceRecord", "Timeline", "read_record", "write_record"]

_NAME = "source.json"

_log = structlog.get_logger("headrace.receiver")


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline, and for each of its ancestors, oldest first, the position at which it was left.

    Without ancestors it is the first one, or one whose history file the server does not have.
    """

    id: int
    ancestors: tuple[tuple[int, Lsn], ...] = ()

    @classmethod
    def parse(cls, id: int, history: str) -> Timeline:
        """Read the content of a timeline history file: lines of parent timeline, switch point and reason."""
        lines = [line.split() for line in history.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        return cls(id, tuple((int(line[0]), Lsn.parse(line[1])) for line in lines))

    def is_same(self, other: Timeline) -> bool:
        """Return whether both are one timeline. Two restores of one backup may give two timelines the same number."""
        unknown = not (self.ancestors and other.ancestors)
        return self.id == other.id and (unknown or self.ancestors == other.ancestors)

    def left_at(self, earlier: Timeline) -> Lsn | None:
        """Return where this timeline's history leaves `earlier`; None if `earlier` is no part of its history."""
        for depth, (parent, switch_point) in enumerate(self.ancestors):
            if parent == earlier.id and self.ancestors[:depth] == (earlier.ancestors or self.ancestors[:depth]):
                return switch_point
        return None


@dataclass(frozen=True, slots=True)
class ServerPosition:
    """What a server says of itself when a replication connection begins."""

    timeline: Timeline
    flushed: Lsn
    """The end of its WAL; on a standby, of what it has received and replayed."""
    in_recovery: bool


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The history that a spool was read from."""

    timeline: Timeline
    confirmed: Lsn = INVALID_LSN
    """A confirmed position of the slot that the server has on disk, so that no crash takes it back."""


def read_record(place: Place) -> SourceRecord | None:
    """Return the record in a spool; None for a spool that was written before there was one."""
    hint = "remove the file if the source is still the same server: it is written again"
    found = read_json(place, _NAME, ("timeline", "ancestors", "confirmed"), hint)
    if found is None:
        return None
    try:
        ancestors = tuple((int(parent), Lsn.parse(switch_point)) for parent, switch_point in found["ancestors"])
        return SourceRecord(Timeline(int(found["timeline"]), ancestors), Lsn.parse(found["confirmed"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SpoolCorrupt(f"{place.location}/{_NAME} cannot be read", hint=hint) from error


def write_record(place: Place, record: SourceRecord) -> None:
    """Replace the record in a spool durably."""
    content = {
        "timeline": record.timeline.id,
        "ancestors": [[parent, str(switch_point)] for parent, switch_point in record.timeline.ancestors],
        "confirmed": str(record.confirmed),
    }
    publish_json(place, _NAME, content)


class SourceHistory:
    """The record of one spool, while its receiver runs. Every method may be called from any thread."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._record: SourceRecord | None = None
        self._reader: int | None = None
        self._seen: tuple[Lsn, Lsn] | None = None

    def continue_from(self, server: ServerPosition, confirmed: Lsn, end: Lsn, reader: int) -> None:
        """Check that `server` continues what the spool holds up to `end`, and record its timeline.

        `confirmed` is the slot's position, `reader` the server process that reads the slot. Raises SourceWentBack;
        SourceInRecovery for a standby that has yet to replay what it had replayed before its restart.
        """
        with self._lock:
            record = read_record(self._place)
            _require_wal(server, end)
            if record is not None:
                _require_continuation(record, server.timeline, confirmed, end)
            if record is None or not record.timeline.is_same(server.timeline):
                # On a new timeline the slot may be a standby's copy, which is behind the one it was made from.
                record = SourceRecord(server.timeline)
                write_record(self._place, record)
            self._record, self._reader, self._seen = record, reader, None

    def restart(self) -> None:
        """Forget the record, because the spool begins anew."""
        with self._lock:
            self._place.delete(_NAME)

    def observe(self, slot: SlotState | None) -> None:
        """Look at the slot while it is read, and record the confirmed position that the server has on disk.

        The server writes a slot to disk whenever its restart_lsn moves. So what was confirmed at one look is on disk
        once a later look, during the same connection, finds another restart_lsn.
        """
        with self._lock:
            if self._record is None or slot is None or slot.active_pid != self._reader:
                self._seen = None
                return
            seen, now = self._seen, (slot.restart_lsn or INVALID_LSN, slot.confirmed_flush_lsn or INVALID_LSN)
            self._seen = now
            if seen is not None and seen[0] != now[0] and seen[1] > self._record.confirmed:
                record = replace(self._record, confirmed=seen[1])
                write_record(self._place, record)
                self._record = record


def _require_wal(server: ServerPosition, end: Lsn) -> None:
    if server.flushed >= end:
        return
    if server.in_recovery:
        msg = f"the standby has WAL up to {server.flushed}, and changes up to {end} have been read from it"
        raise SourceInRecovery(msg, hint="wait until it has replayed them again; if it never does, it was put back")
    raise SourceWentBack(f"the server's WAL ends at {server.flushed}, but changes up to {end} have been read from it")


def _require_continuation(record: SourceRecord, timeline: Timeline, confirmed: Lsn, end: Lsn) -> None:
    if timeline.is_same(record.timeline):
        if confirmed < record.confirmed:
            raise SourceWentBack(
                f"the slot's confirmed position is {confirmed}, but the server has stored {record.confirmed} before",
                detail="the data directory was put back to an earlier state, or the slot was replaced by a copy",
            )
        return
    switch_point = timeline.left_at(record.timeline)
    if switch_point is None:
        raise SourceWentBack(
            f"the server is on timeline {timeline.id}, which does not continue timeline {record.timeline.id}, "
            "from which the spool was read"
        )
    if switch_point < end:
        raise SourceWentBack(
            f"timeline {record.timeline.id} was left at {switch_point}, but changes up to {end} have been read from it"
        )
    _log.info("following the source to a new timeline", timeline=timeline.id, switch_point=str(switch_point))
