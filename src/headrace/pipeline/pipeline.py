"""A pipeline: start, wait, stop. One object is one life; a restart is a new object on the same store and spool."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

import structlog

from ..config.pipeline import InvalidatedSlotBehavior, PipelineConfig, PipelineMode
from ..config.spark import SparkConfig
from ..errors import DestinationFenced, HeadraceError, PipelineStateError, PublicationNotFound, StoreFenced
from ..lsn import INVALID_LSN
from ..replication import ReceiverStatus
from ..spark.labels import java_ended, java_has_exited, java_is_gone
from ..spark.session import open_session
from ..stores.contract import LeasedStore
from ..stores.records import Heartbeat
from ..table_state import State
from ..telemetry.metrics import Metrics
from .build import spark_config
from .life import Life
from .outlets import GivenDestinations, GivenStores, outlets_of
from .source import LOST_CHANGES, await_publication, recreate_slot
from .status import PipelineState, PipelineStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Pipeline"]

_JAVA_POLL_S = 0.25

_log = structlog.get_logger("headrace.pipeline")


class Pipeline:
    """Copies the tables of a publication and streams their changes to a destination, or to several.

    Use it in a `with` block, which stops it in order. It runs in threads of its own: `start` returns at once, `wait`
    returns when it has ended and raises what ended it.
    """

    def __init__(
        self,
        config: PipelineConfig,
        store: GivenStores,
        destination: GivenDestinations,
        *,
        spark: SparkSession | Any | None = None,
    ) -> None:
        """`spark` is a session of yours; without one the pipeline makes its own and ends it.

        For several destinations give them by name, and a store for each by the same name: a mapping, or a function of
        the name. Raises ConfigError if they do not fit.
        """
        self._config = config
        self._outlets = outlets_of(store, destination)
        self._given_spark = spark
        self._stopping = threading.Event()
        self._asked_to_stop = False
        """Whether a stop was asked for; `_stopping` is also set when the pipeline must end."""
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
        self._asked_to_stop = True
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

    def resync(self, table: str, *, destination: str | None = None) -> None:
        """Copy one table again, from the start, while the others stream on; at all destinations, or the one named.

        Raises TableNotFound, or PipelineStateError where a destination does not run.
        """
        for lane in self._running().lanes(table, destination):
            lane.engine.tables.named(table).resync_asked = True

    def rollback(self, table: str, *, to_init: bool = False, destination: str | None = None) -> None:
        """Take a table that failed back to the state before, and try again; or start any table over.

        At all destinations where it has failed, or the one named. Raises TableNotFound, or PipelineStateError for a
        table that has not failed, and where a destination does not run.
        """
        if to_init:
            self.resync(table, destination=destination)
            return
        tables = [lane.engine.tables for lane in self._running().lanes(table, destination)]
        failed = [some for some in tables if some.named(table).state.state is State.ERRORED]
        for some in failed or tables[:1]:
            some.roll_back(some.named(table))

    def _running(self) -> Life:
        if self._life is None or self._state is not PipelineState.RUNNING:
            msg = f"pipeline {self._config.id} is {self._state.value}, not running"
            raise PipelineStateError(msg, hint="start it first; without it, use the store's own rollback methods")
        return self._life

    def _run(self) -> None:
        try:
            with open_session(self._given_spark or self._spark_config()) as spark, self._java_watched():
                while not self._stopping.is_set() and self._live(spark):
                    pass
                self._state = PipelineState.STOPPING
        except BaseException as error:  # noqa: BLE001 - raised again by wait, in the caller's thread
            self._error = error
            hint = error.hint if isinstance(error, HeadraceError) else None
            _log.error("the pipeline ended", pipeline=self._config.id, error=str(error), hint=hint)
            self._state = PipelineState.FAILED
            if isinstance(error, Exception):
                self._report_failure(error, hint)
        else:
            self._state = PipelineState.STOPPED
        finally:
            for outlet in self._outlets:
                if isinstance(outlet.store, LeasedStore):
                    outlet.store.release_lease()

    def _report_failure(self, error: Exception, hint: str | None) -> None:
        """Store what ended the pipeline as its last heartbeat, for `headrace status`.

        A run that another one replaced, or that never got as far as to write, leaves that one's heartbeat alone.
        """
        if self._config.mode is PipelineMode.COPY_ONLY or isinstance(error, DestinationFenced | StoreFenced):
            return
        now, life = datetime.now(UTC), self._life
        receiver = ReceiverStatus("stopped") if life is None else life.reception.status
        own = (socket.gethostname(), os.getpid())
        for outlet in self._outlets:
            try:
                last = outlet.store.get_heartbeat()
                if last is not None and (last.host, last.pid) != own and last.is_alive(now):
                    continue
                applied = INVALID_LSN if last is None else last.applied
                outlet.store.store_heartbeat(
                    Heartbeat(now, *own, "failed", receiver.state, 0.0, applied, str(error), hint)
                )
            except HeadraceError as failure:
                _log.debug("the heartbeat cannot be stored", error=str(failure))

    @contextmanager
    def _java_watched(self) -> Iterator[None]:
        """End the pipeline when Spark's Java process ends: by SparkGone, or in order if it was to stop anyway.

        Without Java nothing can be written, and what fails for that reason says nothing about tables.
        """
        over = threading.Event()
        watch = threading.Thread(target=self._watch_java, args=(over,), name="java-watch", daemon=True)
        watch.start()
        try:
            yield
        except Exception as error:
            if not java_is_gone():
                raise
            _log.debug("failed without Java", error=str(error))
        finally:
            over.set()
            watch.join()
        if not java_is_gone():
            return
        if not self._asked_to_stop:
            raise java_ended()
        _log.info("Spark's Java process ended first; what it was writing is written again at the next start")

    def _watch_java(self, over: threading.Event) -> None:
        while not over.wait(_JAVA_POLL_S):
            life = self._life
            if java_has_exited() and life is not None:
                self._stopping.set()
                life.stop()

    def _spark_config(self) -> SparkConfig:
        return spark_config(self._config, *(outlet.destination for outlet in self._outlets))

    def _live(self, spark: SparkSession | Any) -> bool:
        """One life, until it ends. True: it lost its slot or spool, and the next begins, with another slot."""
        self._life = Life(self._config, self._outlets, spark, self._stopping)
        try:
            self._life.begin()
            self._state = PipelineState.RUNNING
            self._life.run()
        except BaseException as error:
            self._life.end(after_error=True)
            # The receiver meets WAL of a time without the publication also where it is back by now.
            begun = self._state in (PipelineState.RUNNING, PipelineState.WAITING)
            lost = begun or self._life.received(error)
            if isinstance(error, PublicationNotFound) and lost:
                # The slot cannot pass the WAL that was written without a publication; nor was all of it sent.
                self._state = PipelineState.WAITING
                _log.error("the publication is gone; waiting for it", error=str(error), hint=error.hint)
                if not await_publication(self._config, self._stopping):
                    return False
            elif self._config.invalidated_slot_behavior is not InvalidatedSlotBehavior.RECREATE or not isinstance(
                error, LOST_CHANGES
            ):
                raise
            recreate_slot(self._config, [outlet.store for outlet in self._outlets], error, self._stopping)
            return True
        self._life.end()
        return False
