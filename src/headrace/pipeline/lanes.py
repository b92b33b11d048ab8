"""The lanes of a life: one that is the pipeline's own, or several that fail and start again apart from each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import structlog

from ..config.pipeline import PipelineMode
from ..errors import HeadraceError
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema
from .lane import Lane
from .lane_run import LaneRun
from .outlets import Outlet
from .shared import Shared
from .status import DestinationState, DestinationStatus

__all__ = ["Lanes", "OneLane", "SeveralLanes"]

_TURN_S = 0.2
_RELIEF_INTERVAL_S = 5.0
_TELLING_INTERVAL_S = 60.0
"""How long the spool is full of what one lane needs, and that lane does not move, before it is said, each time."""

_log = structlog.get_logger("headrace.lanes")

_Published = Sequence[ReplicatedTableSchema]


class Lanes(Protocol):
    """In this order: `open`, `begin`, `run`, `close`, `shut`; the rest at any time."""

    def open(self, published: _Published) -> None:
        """Open the destinations; return when there is one to read the slot for."""

    def begin(self, published: _Published, older_than_slot: Collection[int]) -> None:
        """Claim the destinations and take up the tables: the receiver holds the slot, unless there is none.

        `older_than_slot`: tables that were published before the slot was created, in this life.
        """

    def run(self) -> None:
        """Until the pipeline is told to stop, or is done, or nothing is left that could run."""

    def stop(self) -> None:
        """The pipeline stops. Returns at once."""

    def close(self) -> None: ...

    def shut(self, *, after_error: bool) -> None: ...

    def running(self) -> list[Lane]:
        """Those whose tables may be asked for."""

    def all(self) -> list[Lane]: ...

    def statuses(self) -> dict[str, DestinationStatus]:
        """By name; none for a destination without."""


class OneLane:
    """The only destination, in the pipeline's own thread: what ends it ends the pipeline."""

    def __init__(self, shared: Shared, outlet: Outlet, stopping: threading.Event) -> None:
        self._lane = Lane(shared, outlet, stopping)

    def open(self, published: _Published) -> None:
        self._lane.open(published)

    def begin(self, published: _Published, older_than_slot: Collection[int]) -> None:
        self._lane.claim()
        self._lane.begin(published, older_than_slot)

    def run(self) -> None:
        self._lane.run()

    def stop(self) -> None:
        self._lane.stop()

    def close(self) -> None:
        self._lane.close()

    def shut(self, *, after_error: bool) -> None:
        self._lane.shut(after_error=after_error)

    def running(self) -> list[Lane]:
        return [self._lane]

    def all(self) -> list[Lane]:
        return [self._lane]

    def statuses(self) -> dict[str, DestinationStatus]:
        return {}


class SeveralLanes:
    """A thread for each destination. The pipeline ends by an error only when all of them have failed for good."""

    def __init__(
        self,
        shared: Shared,
        outlets: Sequence[Outlet],
        published: Callable[[], _Published],
        stopping: threading.Event,
    ) -> None:
        self._shared, self._stopping = shared, stopping
        self._runs = [LaneRun(shared, outlet, published) for outlet in outlets]
        self._relief_due = 0.0
        self._waiting: dict[str, tuple[Lsn, float]] = {}
        """Of lanes that the spool is full for: where each stands, and when to tell of it."""

    def open(self, published: _Published) -> None:
        """Wait for the first: the slot keeps WAL, and must not be made for nobody."""
        del published
        for run in self._runs:
            run.start()
        while not any(run.opened.is_set() for run in self._runs):
            self._raise_if_all_failed()
            if self._stopping.wait(_TURN_S):
                return

    def begin(self, published: _Published, older_than_slot: Collection[int]) -> None:
        del published
        for run in self._runs:
            run.begin(older_than_slot)

    def run(self) -> None:
        streams = self._shared.config.mode is not PipelineMode.COPY_ONLY
        while not self._stopping.is_set() and not all(run.ended for run in self._runs):
            if streams:
                # Raises what ended the receiver, and starts it again where that helps.
                self._shared.reception.receiver.wait(lambda _: False, _TURN_S)
                self._relieve_spool()
            else:
                self._stopping.wait(_TURN_S)
        if self._stopping.is_set():
            return
        self._raise_if_all_failed()
        if not streams:
            self._raise_first()

    def stop(self) -> None:
        for run in self._runs:
            run.stop()

    def close(self) -> None:
        self.stop()
        for run in self._runs:
            run.join()

    def shut(self, *, after_error: bool) -> None:
        """Each has closed its own."""

    def running(self) -> list[Lane]:
        return [run.lane for run in self._runs if run.state is DestinationState.RUNNING]

    def all(self) -> list[Lane]:
        return [run.view for run in self._runs]

    def statuses(self) -> dict[str, DestinationStatus]:
        return {run.name: run.status() for run in self._runs}

    def _raise_if_all_failed(self) -> None:
        if all(run.state is DestinationState.FAILED for run in self._runs):
            self._raise_first()

    def _raise_first(self) -> None:
        """What the first that failed for good failed with, if one has."""
        failed = [run for run in self._runs if run.state is DestinationState.FAILED]
        for run in sorted(failed, key=lambda run: run.failed_at):
            if run.error is not None:
                raise run.error

    def _relieve_spool(self) -> None:
        """Keep one broken destination from filling the spool for all; failed tables see to that themselves."""
        if time.monotonic() < self._relief_due:
            return
        self._relief_due = time.monotonic() + _RELIEF_INTERVAL_S
        quota = self._shared.config.spool.quota_bytes
        for run in self._runs:
            try:
                if self._shared.reception.is_last(run.name) and run.lane.engine.batches.size() >= quota:
                    self._give_up(run)
                else:
                    self._waiting.pop(run.name, None)
            except HeadraceError as error:
                _log.warning("the spool cannot be relieved", error=str(error), hint=error.hint)

    def _give_up(self, run: LaneRun) -> None:
        if run.give_up():
            msg = "the spool is full of a failed destination's changes: all its tables will be copied again"
            _log.warning(msg, destination=run.name)
        elif run.state is DestinationState.RUNNING:
            self._tell_of(run)

    def _tell_of(self, run: LaneRun) -> None:
        """It may be slow, or hang: that looks the same, and a write under way cannot be taken back."""
        applied, now = run.lane.applied, time.monotonic()
        stood, due = self._waiting.get(run.name, (applied, now + _TELLING_INTERVAL_S))
        if stood == applied and now >= due:
            msg = "the spool is full of changes that a destination does not write: the others wait for it"
            hint = "give the spool room, or stop the pipeline and take the destination out, if it hangs"
            _log.warning(msg, destination=run.name, applied=str(applied), hint=hint)
        if stood != applied or now >= due:
            due = now + _TELLING_INTERVAL_S
        self._waiting[run.name] = applied, due
