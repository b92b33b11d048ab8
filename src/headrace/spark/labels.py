"""What Spark knows of a job: its description, its scheduler pool, and the tag by which it can be cancelled.

All three belong to the thread that starts the job. A thread that ends should have run under `pyspark.InheritableThread`
or a pool that lives long, because Spark keeps a JVM thread for each Python thread.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..errors import SparkError, SparkGone
from .failures import MARK_PROPERTY, from_spark, new_mark

__all__ = ["JavaPulse", "cancel", "java_ended", "java_has_exited", "java_is_gone", "job", "label_thread"]

_DESCRIPTION = "spark.job.description"
_POOL = "spark.scheduler.pool"
_INTERRUPT = "spark.job.interruptOnCancel"
_ENDING_S = 5.0
_PULSE_INTERVAL_S = 5.0


@contextmanager
def job(spark: SparkSession, description: str, *, pool: str | None = None) -> Iterator[None]:
    """Jobs that this thread starts inside bear the description and run in the pool; their errors come out translated.

    Without a pool they run in the one the thread has.

    Raises:
        HeadraceError: the one that a task raised, as itself; or a SparkError for whatever else Spark failed with.
    """
    mark = new_mark()
    properties = {_DESCRIPTION: description, MARK_PROPERTY: mark, **({_POOL: pool} if pool else {})}
    try:
        with _properties(spark.sparkContext, properties):
            yield
    except (PySparkException, Py4JError, OSError) as error:
        if java_is_gone():
            raise java_ended() from None
        if isinstance(error, OSError):
            raise
        raise from_spark(error, description, mark) from None


def label_thread(spark: SparkSession, tag: str) -> None:
    """For a thread that serves one purpose: `cancel` with the tag ends its jobs, which run in a pool of their own.

    So the jobs of several such threads share the cluster fairly; within one pool, first come is first served.
    """
    context = spark.sparkContext
    try:
        context.addJobTag(tag)
        # A task that waits for its worker is woken, instead of being asked at its next turn.
        context.setLocalProperty(_INTERRUPT, "true")
        context.setLocalProperty(_POOL, f"{tag}-{threading.current_thread().name}")
    except (Py4JError, OSError):
        # Without Java there are no jobs to label; the first one says so.
        if not java_is_gone():
            raise


def cancel(spark: SparkSession, tag: str) -> None:
    """End all running jobs with the tag, of any thread; their callers get a SparkError. Later ones still start.

    Raises SparkError where there is no Spark any more.
    """
    try:
        spark.sparkContext.cancelJobsWithTag(tag)
    except (PySparkException, Py4JError, OSError) as error:
        raise from_spark(error, f"cancelling {tag}") from None
    except AttributeError:
        # A context that another thread just stopped has lost its Java half.
        msg = f"cancelling {tag} failed: Spark was stopped"
        raise SparkError(msg) from None


def java_is_gone() -> bool:
    """Return whether the Java process behind Spark has ended, or no longer accepts connections because it is ending."""
    gateway = SparkContext._gateway
    if gateway is None:
        return False
    return java_has_exited() or not _accepts_connections(gateway)


def java_ended() -> SparkGone:
    """Return the error that says that Java has ended, and how."""
    process = getattr(SparkContext._gateway, "proc", None)
    status = None
    if process is not None:
        # It closes its sockets before it can be waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(_ENDING_S)
    detail = None
    if status is not None:
        detail = f"killed by {signal.Signals(-status).name}" if status < 0 else f"it exited with status {status}"
    return SparkGone("Spark's Java process has ended", detail=detail)


def java_has_exited() -> bool:
    """Return whether the Java process that this process started has exited. Costs next to nothing."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


class JavaPulse:
    """Ask Java for its time every few seconds, in a thread of its own: a process that is frozen does not answer.

    Such a process keeps its connections, so that whoever waits for it waits without end.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._answered_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="java-pulse", daemon=True)

    def start(self) -> None:
        self._answered_at = time.monotonic()
        self._thread.start()

    def close(self) -> None:
        """Stop asking. A question that Java does not answer is left behind."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(1.0)

    @property
    def silent_s(self) -> float:
        """Seconds since Java last answered."""
        return time.monotonic() - self._answered_at

    @property
    def process(self) -> str:
        """The Java process, for messages."""
        process = getattr(SparkContext._gateway, "proc", None)
        return "Spark's Java process" if process is None else f"Spark's Java process (process {process.pid})"

    def _run(self) -> None:
        while not self._over.wait(_PULSE_INTERVAL_S):
            # A process that has ended is noticed, and reported, by others.
            with contextlib.suppress(Py4JError, OSError, AttributeError):
                SparkContext._jvm.System.currentTimeMillis()  # type: ignore[union-attr]
                self._answered_at = time.monotonic()


def _accepts_connections(gateway: Any) -> bool:
    parameters = getattr(gateway, "java_parameters", None)
    if parameters is None:
        return True
    try:
        socket.create_connection((parameters.address, parameters.port), _ENDING_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def _properties(context: SparkContext, properties: dict[str, str]) -> Iterator[None]:
    before = {name: context.getLocalProperty(name) for name in properties}
    for name, value in properties.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        if not java_is_gone():
            for name, old in before.items():
                # None takes the property away, which the annotation of setLocalProperty does not say.
                context.setLocalProperty(name, old)  # type: ignore[arg-type]
