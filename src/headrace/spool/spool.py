"""The spool: segments of raw WAL, appended by one receiver, read by anyone, again and again.

The receiver is the only writer. Readers ask for what follows a position and get segments without a hole; what they have
seen of a segment already they drop by commit LSN, so a segment that a dying receiver published late does no harm.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..config.spool import SpoolConfig
from ..errors import SpoolCorrupt, SpoolGap, SpoolIoError
from ..lsn import INVALID_LSN, Lsn
from ..private_files import create_file
from .contract import Place
from .listing import Listing, Segment
from .name import IdleMark, SegmentName, parse_name
from .place import open_place, space_hint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from ..pgoutput.batch import MessageBatch
    from .segment import SegmentIndex

__all__ = ["Segment", "Spool", "SpoolPosition", "write_error"]

_Content = TypeVar("_Content")


@dataclass(frozen=True, slots=True)
class SpoolPosition:
    """`end`: the next segment starts there. `covered`: nothing before it is missing; a receiver resumes there."""

    end: Lsn
    covered: Lsn


class Spool:
    """A place with the meaning of its names. Cheap to open; it remembers only what it saw last."""

    def __init__(self, place: Place, *, durable: bool = True) -> None:
        self.place = place
        self._listing = Listing(place)
        self._durable = durable
        self._warned = False

    @classmethod
    def open(cls, config: SpoolConfig) -> Spool:
        place = open_place(config.uri, config.storage_options, config.staging, config.group)
        return cls(place, durable=config.durable)

    # -- reading ------------------------------------------------------------------------------------------------

    def segments(self, after: Lsn | None = None, *, until: Lsn | None = None) -> list[Segment]:
        """The complete segments that hold anything at or after a position, in order.

        With `until` those behind it need not be among them: what was seen last may serve, without another look.
        Raises SpoolGap when they do not begin at that position, do not follow each other, or end before the last
        segment that an idle mark tells of.
        """
        if until is not None:
            chain, gap = _chain(self._listing.last.segments, after)
            if gap is None and chain and chain[-1].end >= until:
                return chain
        known: tuple[Lsn, Lsn] | None = None
        while True:
            listed = self._listing.look()
            chain, gap = _chain(listed.segments, after)
            if gap is None and after is not None:
                gap = _missing_end(chain, listed.marks, after)
            if gap is None:
                return chain
            if gap == known:
                raise SpoolGap(f"the spool has nothing between {gap[0]} and {gap[1]}")
            # A listing is not of one moment: of two segments published meanwhile it may have the second alone. By the
            # next one the first is there.
            known = gap

    def oldest_known(self) -> Lsn:
        """Return where the oldest segment begins, by the last listing; 0 if it had none."""
        segments = self._listing.last.segments
        return segments[0].start if segments else INVALID_LSN

    def read(self, name: SegmentName) -> MessageBatch:
        """Read and verify a segment. Raises SpoolCorrupt."""
        from .segment import read_segment  # noqa: PLC0415 - listing a spool needs no Arrow

        return self._read(name, read_segment)

    def index(self, name: SegmentName) -> SegmentIndex:
        """Read and verify the index of a segment. Raises SpoolCorrupt."""
        import structlog  # noqa: PLC0415

        from .segment import read_index  # noqa: PLC0415

        index = self._read(name, read_index)
        if index.name is None and not self._warned:
            self._warned = True
            structlog.get_logger("headrace.spool").warning(
                "an earlier version wrote segments without checksums: they are not verified", segment=str(name)
            )
        return index

    def _read(self, name: SegmentName, reader: Callable[[pa.Buffer, SegmentName, str], _Content]) -> _Content:
        where = f"{self.place.location}/{name}"
        try:
            return reader(self.place.read(str(name)), name, where)
        except SpoolCorrupt:
            # A transfer may have been cut or damaged on its way, and the file be whole.
            return reader(self.place.read(str(name)), name, where)

    def verify(self) -> None:
        """Read every segment. Raises SpoolCorrupt, or SpoolGap where one is missing."""
        for segment in self.segments():
            for name in segment.names:
                self.read(name)

    def batches(self, segments: Iterable[Segment]) -> Iterator[MessageBatch]:
        return (self.read(name) for segment in segments for name in segment.names)

    def position(self) -> SpoolPosition | None:
        """Where the spool ends, or None for one that nothing was ever written to."""
        ends = [segment.end for segment in self.segments()]
        marks = self._listing.look().marks
        ends += [mark.end for mark in marks]
        if not ends:
            return None
        return SpoolPosition(max(ends), max([*ends, *(mark.covered for mark in marks)]))

    def is_empty(self) -> bool:
        """Whether the spool has neither segments nor idle marks, as one that nothing was ever written to."""
        listed = self._listing.look()
        return not (listed.parts or listed.marks)

    def size(self, after: Lsn | None = None) -> int:
        """Bytes of published segments (those not wholly before a position)."""
        parts = self._listing.look().parts
        return sum(entry.size for name, entry in parts.values() if after is None or name.end > after)

    # -- writing: the receiver only -----------------------------------------------------------------------------

    def secure(self) -> None:
        """Keep other users out. Raises ConfigError where they could have written."""
        self.place.secure()

    def clean(self, confirmed: Lsn) -> None:
        """Delete staged files, and segments with missing parts, that a crash left behind.

        A segment that ends at or before `confirmed` stays: it was complete before it was confirmed, so the listing is
        from an earlier moment, and the server does not send its contents again.
        """
        try:
            for staged in self.place.staging.iterdir():
                staged.unlink()
        except OSError as error:
            raise SpoolIoError(f"cannot clean {self.place.staging}", detail=error.strerror) from error
        listed = self._listing.look()
        whole = {name for segment in listed.segments for name in segment.names}
        for name, _ in listed.parts.values():
            if name not in whole and name.end > confirmed:
                self.place.delete(str(name))

    def stage(self) -> Path:
        """A new path to write a file to, before it is published."""
        return self.place.staging / secrets.token_hex(8)

    def write(
        self,
        path: Path,
        lsns: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.int64],
        data: Sequence[bytes | memoryview],
        index: SegmentIndex,
    ) -> None:
        """Write a staged segment, whole and safe on disk, or not at all."""
        from .segment import write_segment  # noqa: PLC0415

        try:
            create_file(path)
            write_segment(path, lsns, lengths, data, index)
            if self._durable:
                _fsync(path)
        except OSError as error:
            # A failed fsync may have dropped pages that look written: only writing them anew is safe.
            path.unlink(missing_ok=True)
            raise write_error(path, error) from error

    def publish(self, staged: Path, name: SegmentName) -> None:
        """Give a staged part its name. A segment is visible once all its parts are, and safe after `sync`."""
        self.place.publish(staged, str(name))

    def sync(self) -> None:
        """Make the names published so far safe."""
        if self._durable:
            self.place.sync()

    def mark_idle(self, mark: IdleMark, replaces: IdleMark | None = None) -> None:
        """Record that nothing lies between the last segment and a position, before that position is confirmed."""
        staged = self.stage()
        try:
            create_file(staged)
        except OSError as error:
            raise write_error(staged, error) from error
        self.place.publish(staged, str(mark))
        self.sync()
        if replaces is not None and replaces != mark:
            self.place.delete(str(replaces))

    def release(self, applied: Lsn, keep_seconds: float) -> int:
        """Delete segments every table has applied and that are old enough; the newest stays. Returns bytes freed."""
        now = time.time()
        freed = 0
        for segment in self._listing.look().segments[:-1]:
            # An age below zero means that the clock was set back: it says nothing, and must not fill the disk.
            if segment.end > applied or 0 <= now - segment.modified < keep_seconds:
                break
            for name in segment.names:
                self.place.delete(str(name))
            freed += segment.size
        return freed

    def oldest_end(self) -> Lsn:
        """Where the oldest segment ends that `release` could remove; beyond every position if there is none."""
        segments = self._listing.look().segments
        return segments[0].end if len(segments) > 1 else Lsn((1 << 64) - 1)

    def reset(self, start: Lsn) -> None:
        """Forget everything and begin anew at a position."""
        self.forget()
        self.mark_idle(IdleMark(start, start))

    def forget(self) -> None:
        """Be as a spool that nothing was ever written to. Only while no receiver runs."""
        for entry in self.place.entries():
            if parse_name(entry.name) is not None:
                self.place.delete(entry.name)


def _chain(segments: Sequence[Segment], after: Lsn | None) -> tuple[list[Segment], tuple[Lsn, Lsn] | None]:
    """What follows a position, and the first hole in it."""
    chain: list[Segment] = []
    reached = after
    for segment in segments:
        if after is not None and segment.end <= after:
            continue
        if reached is not None and segment.start > reached:
            return chain, (reached, segment.start)
        if reached is None or segment.end > reached:
            chain.append(segment)
            reached = segment.end
    return chain, None


def _missing_end(chain: Sequence[Segment], marks: Iterable[IdleMark], after: Lsn) -> tuple[Lsn, Lsn] | None:
    """What is missing behind the chain: an idle mark names the end of the last segment that was published."""
    reached = chain[-1].end if chain else after
    end = max((mark.end for mark in marks), default=reached)
    return (reached, end) if end > reached else None


def write_error(path: Path, error: OSError) -> SpoolGap | SpoolIoError:
    """Tell a spool that was removed, which waiting does not bring back, from a medium that refuses."""
    if isinstance(error, FileNotFoundError):
        return SpoolGap(f"the spool's staging directory {path.parent} is gone")
    return SpoolIoError(f"cannot write {path}", detail=error.strerror or str(error), hint=space_hint(error, path))


def _fsync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
