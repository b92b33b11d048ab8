"""A pipeline: start, wait, stop. One object is one life; a restart is a new object on the same store and spool."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

import structlog

from ..config.pipeline import InvalidatedSlotBehavior, PipelineConfig
from ..destinations.contract import Destination
from ..errors import HeadraceError, PipelineStateError, PublicationNotFound
from ..spark.session import open_session
from ..stores.contract import PipelineStore
from ..telemetry.metrics import Metrics
from .build import spark_config
from .life import Life
from .source import LOST_SLOT, await_publication, recreate_slot
from .status import PipelineState, PipelineStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Pipeline"]

_log = structlog.get_logger("headrace.pipeline")


class Pipeline:
    """Copies the tables of a publication and streams their changes to a destination.

    Use it in a `with` block, which stops it in order. It runs in threads of its own: `start` returns at once, `wait`
    returns when it has ended and raises what ended it.
    """

    def __init__(
        self,
        config: PipelineConfig,
        store: PipelineStore,
        destination: Destination,
        *,
        spark: SparkSession | Any | None = None,
    ) -> None:
        """`spark` is a session of yours; without one the pipeline makes its own and ends it."""
        self._config, self._store, self._destination = config, store, destination
        self._given_spark = spark
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._state = PipelineState.NEW
        self._error: BaseException | None = None
        self._life: Life | None = None
        self._thread = threading.Thread(target=self._run, name=f"pipeline-{config.id}", daemon=True)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin. Raises PipelineStateError the second time."""
        with self._lock:
            if self._state is not PipelineState.NEW:
                msg = f"pipeline {self._config.id} was started before and is {self._state.value}"
                raise PipelineStateError(msg)
            self._state = PipelineState.STARTING
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Until the pipeline has ended: True; False after `timeout` seconds. Raises what ended it."""
        if self._state is PipelineState.NEW:
            msg = f"pipeline {self._config.id} was not started"
            raise PipelineStateError(msg)
        # In turns, so that Ctrl-C is heard.
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left <= 0:
                return False
            self._thread.join(left)
        if self._error is not None:
            raise self._error
        return True

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the batch under way, flush, store progress and end: True. What takes longer than `timeout` is cut off.

        Copies under way are given up and go on, or start over, next time. May be repeated; raises nothing.
        """
        self._stopping.set()
        life = self._life
        if life is not None:
            life.cancel_copies()
        if self._state is PipelineState.NEW:
            return True
        self._thread.join(timeout)
        if self._thread.is_alive() and self._life is not None:
            _log.warning("cutting off what is still running", pipeline=self._config.id, seconds=timeout)
            self._life.cancel_all()
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def status(self) -> PipelineStatus:
        life = self._life
        return PipelineStatus(self._state) if life is None else life.status(self._state)

    @property
    def metrics(self) -> Metrics | None:
        """The metrics of the life under way; None before the first."""
        return None if self._life is None else self._life.metrics

    def resync(self, table: str) -> None:
        """Copy one table again, from the start, while the others stream on. Raises TableNotFound."""
        self._running().tables.named(table).resync_asked = True

    def rollback(self, table: str, *, to_init: bool = False) -> None:
        """Take a table that failed back to the state before, and try again; or start any table over.

        Raises TableNotFound, or PipelineStateError for a table that has not failed.
        """
        tables = self._running().tables
        if to_init:
            tables.named(table).resync_asked = True
        else:
            tables.roll_back(tables.named(table))

    def _running(self) -> Life:
        if self._life is None or self._state is not PipelineState.RUNNING:
            msg = f"pipeline {self._config.id} is {self._state.value}, not running"
            raise PipelineStateError(msg, hint="start it first; without it, use the store's own rollback methods")
        return self._life

    def _run(self) -> None:
        try:
            with open_session(self._given_spark or spark_config(self._config, self._destination)) as spark:
                while not self._stopping.is_set() and self._live(spark):
                    pass
                self._state = PipelineState.STOPPING
        except BaseException as error:  # noqa: BLE001 - raised again by wait, in the caller's thread
            self._error = error
            hint = error.hint if isinstance(error, HeadraceError) else None
            _log.error("the pipeline ended", pipeline=self._config.id, error=str(error), hint=hint)
            self._state = PipelineState.FAILED
        else:
            self._state = PipelineState.STOPPED

    def _live(self, spark: SparkSession | Any) -> bool:
        """One life, until it ends. True: its slot serves no more, a new one is made, and the next life begins."""
        self._life = Life(self._config, self._store, self._destination, spark, self._stopping)
        try:
            self._life.begin()
            self._state = PipelineState.RUNNING
            self._life.run()
        except BaseException as error:
            self._life.end(after_error=True)
            # The receiver meets WAL of a time without the publication also where it is back by now.
            lost = self._state is PipelineState.RUNNING or self._life.received(error)
            if isinstance(error, PublicationNotFound) and lost:
                # The slot cannot pass the WAL that was written without a publication; nor was all of it sent.
                _log.error("the publication is gone; waiting for it", error=str(error), hint=error.hint)
                if not await_publication(self._config, self._stopping):
                    return False
            elif self._config.invalidated_slot_behavior is not InvalidatedSlotBehavior.RECREATE or not isinstance(
                error, LOST_SLOT
            ):
                raise
            recreate_slot(self._config, self._store, error)
            return True
        self._life.end()
        return False
