"""One receiver for the lanes of a pipeline: it is told the least that all of them have applied and still need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ..errors import HeadraceError
from ..lsn import INVALID_LSN, Lsn
from ..replication import ReceiverStatus
from .reception import Reception

__all__ = ["Holds", "LaneReception", "SharedReception"]


class Holds:
    """What each lane has said: up to where it has applied, and from where on segments are read by one of its tables.

    One that has said nothing yet needs everything; one that was let go needs nothing.
    """

    def __init__(self, lanes: Iterable[str]) -> None:
        self._said = dict.fromkeys(lanes, (INVALID_LSN, INVALID_LSN))

    def say(self, lane: str, applied: Lsn, hold: Lsn) -> None:
        if lane in self._said:
            self._said[lane] = max(applied, self._said[lane][0]), hold

    def take_up(self, lane: str) -> None:
        """A lane begins anew: until it says more, nothing may go that it could need."""
        self._said[lane] = INVALID_LSN, INVALID_LSN

    def let_go(self, lane: str) -> None:
        """Nothing waits for this lane any more."""
        self._said.pop(lane, None)

    def least(self) -> tuple[Lsn, Lsn] | None:
        """What may count as applied by all, and what must be kept for any; None: no lane needs anything."""
        if not self._said:
            return None
        return min(applied for applied, _ in self._said.values()), min(hold for _, hold in self._said.values())

    def is_last(self, lane: str) -> bool:
        """Whether no other lane needs older segments."""
        needed = {name: min(said) for name, said in self._said.items()}
        return lane in needed and needed[lane] == min(needed.values())


class SharedReception:
    """The receiver, and what all lanes together tell it. Methods may be called from any thread."""

    def __init__(self, reception: Reception, lanes: Iterable[str]) -> None:
        self.receiver = reception
        self._holds = Holds(lanes)
        # Held while the receiver is told: what is to be kept may move backward, so the order counts.
        self._lock = threading.Lock()

    def of(self, lane: str, stopping: threading.Event) -> LaneReception:
        return LaneReception(self, lane, stopping)

    def say(self, lane: str, applied: Lsn, hold: Lsn) -> None:
        with self._lock:
            self._holds.say(lane, applied, hold)
            self._tell()

    def take_up(self, lane: str) -> None:
        with self._lock:
            self._holds.take_up(lane)
            self._tell()

    def let_go(self, lane: str) -> None:
        with self._lock:
            self._holds.let_go(lane)
            self._tell()

    def is_last(self, lane: str) -> bool:
        with self._lock:
            return self._holds.is_last(lane)

    def _tell(self) -> None:
        least = self._holds.least()
        if least is not None:
            self.receiver.apply(*least)


class LaneReception:
    """The receiver as one lane sees it."""

    def __init__(self, shared: SharedReception, lane: str, stopping: threading.Event) -> None:
        self._shared = shared
        self._lane = lane
        self._stopping = stopping

    @property
    def status(self) -> ReceiverStatus:
        return self._shared.receiver.status

    @property
    def fatal(self) -> HeadraceError | None:
        """What ended the receiver for good."""
        return self._shared.receiver.fatal

    @property
    def is_last(self) -> bool:
        """Whether the spool is kept for this lane more than for any other."""
        return self._shared.is_last(self._lane)

    def wait(self, until: Callable[[ReceiverStatus], bool], timeout: float) -> bool:
        """As `Reception.wait`; False at once when the lane stops."""
        return not self._stopping.is_set() and self._shared.receiver.wait(until, timeout)

    def apply(self, applied: Lsn, hold: Lsn) -> None:
        """This lane has applied everything before `applied`; segments from `hold` on are still read by it."""
        self._shared.say(self._lane, applied, hold)
