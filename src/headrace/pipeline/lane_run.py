"""Keeps the lane of one of several destinations going: it fails and starts again apart from the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

import structlog

from ..config.pipeline import PipelineMode
from ..errors import HeadraceError, RetryPolicy, SourceError, SpoolGap
from ..schema import ReplicatedTableSchema
from .lane import Lane
from .outlets import Outlet
from .shared import Shared
from .status import DestinationState, DestinationStatus
from .table_sync import as_table_error

__all__ = ["LaneRun"]

_FIRST_DELAY_S = 1.0
_LONGEST_DELAY_S = 60.0
_HEALTHY_S = 60.0
"""A lane that ran so long starts the delays anew."""

_PATIENCE_S = 60.0
"""One that takes longer to open is out of order too."""

_log = structlog.get_logger("headrace.lanes")


class LaneRun:
    """A thread from `start` to its end. An error that passes by itself is followed by another try."""

    def __init__(
        self, shared: Shared, outlet: Outlet, published: Callable[[], Sequence[ReplicatedTableSchema]]
    ) -> None:
        """`published` looks at the publication, anew for each try."""
        self._shared, self._outlet, self._published = shared, outlet, published
        self._lock = threading.Lock()
        """Held by whoever moves the state."""
        self._ending = threading.Event()
        self._source_ready = threading.Event()
        self._older_than_slot: Collection[int] = ()
        self.opened = threading.Event()
        """Whether the destination has been opened once."""
        self.state = DestinationState.OPENING
        self.error: BaseException | None = None
        """What the last try failed with."""
        self.failed_at = 0.0
        """When it failed for good, by the monotonic clock."""
        self.attempts = 0
        self._delay_s = _FIRST_DELAY_S
        self._given_up = False
        self._since = 0.0
        """When it began to open, by the monotonic clock."""
        self.lane = Lane(shared, outlet, threading.Event())
        """The try under way, or the last."""
        self._before: Lane | None = None
        self.lane.engine.metrics.destination_running(False)
        self._thread = threading.Thread(target=self._run, name=f"lane-{outlet.name}", daemon=True)

    @property
    def name(self) -> str:
        return self._outlet.name

    @property
    def view(self) -> Lane:
        """What is to be shown: the try before, as long as the one under way knows no tables."""
        lane, before = self.lane, self._before
        return lane if before is None or lane.engine.tables.all() else before

    @property
    def ended(self) -> bool:
        """For good: it will not start again by itself."""
        return self.state in (DestinationState.FAILED, DestinationState.STOPPED)

    def start(self) -> None:
        self._thread.start()

    def begin(self, older_than_slot: Collection[int]) -> None:
        """The slot is there, and the receiver runs: tables may be taken up.

        `older_than_slot`: tables that were published before the slot was created, in this life.
        """
        self._older_than_slot = older_than_slot
        self._source_ready.set()

    def stop(self) -> None:
        """Returns at once; `join` waits."""
        with self._lock:
            self._ending.set()
            self._source_ready.set()
            self.lane.stop()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()

    def give_up(self) -> bool:
        """Let the spool go that is kept for a lane that does not run: all its tables are copied again when it does.

        False if it runs, or was given up before. Raises StoreError.
        """
        with self._lock:
            hangs = self.state is DestinationState.OPENING and time.monotonic() - self._since >= _PATIENCE_S
            out_of_order = hangs or self.state in (DestinationState.WAITING, DestinationState.FAILED)
            if self._given_up or not out_of_order:
                return False
            # The store first: a lane that finds its progress must find the segments too.
            self._outlet.store.reset_for_resync()
            self._shared.reception.let_go(self.name)
            self._given_up = True
            return True

    def status(self) -> DestinationStatus:
        lane, state = self.view, self.state
        error = None if state in (DestinationState.RUNNING, DestinationState.STOPPED) else self.error
        return DestinationStatus(
            self.name,
            state,
            {table.name: table for table in lane.table_statuses()},
            lane.applied,
            lane.lag_bytes,
            lane.lag_seconds,
            None if error is None else str(error),
            error.hint if isinstance(error, HeadraceError) else None,
            self.attempts,
        )

    def _run(self) -> None:
        structlog.contextvars.bind_contextvars(destination=self.name)
        while not self._ending.is_set():
            started = time.monotonic()
            error = self._try()
            if error is None or self._ending.is_set() or error is self._shared.reception.receiver.fatal:
                break
            if time.monotonic() - started >= _HEALTHY_S:
                self.attempts, self._delay_s = 0, _FIRST_DELAY_S
            self.attempts += 1
            if not self._wait(error):
                return
        with self._lock:
            self.state = DestinationState.STOPPED

    def _try(self) -> BaseException | None:
        """One try, from opening the destination to closing it; what ended it."""
        lane = self._next()
        try:
            lane.open(self._published())
            self.opened.set()
            self._source_ready.wait()
            lane.claim()
            if not self._ending.is_set():
                self._take_up()
                # A later try meets a slot that may be older than what has been published since.
                older, self._older_than_slot = self._older_than_slot, ()
                lane.begin(self._published(), older)
                lane.run()
        except BaseException as error:  # noqa: BLE001 - told by the status, and by the pipeline's end if it ends it
            lane.engine.abandon()
            lane.close()
            lane.shut(after_error=True)
            return error
        lane.close()
        try:
            lane.shut()
        except HeadraceError as error:
            _log.warning("the destination did not close", error=str(error), hint=error.hint)
        return None

    def _next(self) -> Lane:
        with self._lock:
            if self.error is not None:
                self._before = self.view
                self.lane = Lane(self._shared, self._outlet, threading.Event())
                if self._ending.is_set():
                    self.lane.stop()
            self.state, self._since = DestinationState.OPENING, time.monotonic()
            return self.lane

    def _take_up(self) -> None:
        """From here on it is not given up."""
        with self._lock:
            self.state = DestinationState.RUNNING
            if self._given_up:
                # Before it looks where to begin: what it will need must not go meanwhile.
                self._shared.reception.take_up(self.name)
                self._given_up = False

    def _wait(self, error: BaseException) -> bool:
        """Until the next try is due; False if there is none."""
        known = as_table_error(error) if isinstance(error, Exception) else None
        if known is None or not self._passes(known):
            with self._lock:
                self.state, self.error, self.failed_at = DestinationState.FAILED, error, time.monotonic()
            hint = None if known is None else known.hint
            _log.error("the destination has failed; the others go on", error=str(error), hint=hint)
            return False
        with self._lock:
            self.state, self.error = DestinationState.WAITING, known
        if isinstance(known, SpoolGap):
            _log.warning("the spool has not what the destination needs: all tables are copied again", error=str(error))
            self._start_over()
        delay, self._delay_s = self._delay_s, min(self._delay_s * 2, _LONGEST_DELAY_S)
        _log.warning("the destination failed; starting it again", error=str(known), hint=known.hint, seconds=delay)
        self._ending.wait(delay)
        return True

    def _passes(self, error: HeadraceError) -> bool:
        """Whether trying again may help. What is wrong with the source for good, the receiver meets too."""
        if self._shared.config.mode is PipelineMode.COPY_ONLY:
            return False
        return error.retry is RetryPolicy.TIMED or isinstance(error, (SourceError, SpoolGap))

    def _start_over(self) -> None:
        try:
            self.give_up()
        except HeadraceError as error:
            # The next try meets the same gap, and comes back here.
            _log.warning("the store cannot be written", error=str(error), hint=error.hint)
