"""Runs a pipeline in the foreground, for the commands that do: shows it, stops it by signals, leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psutil
import structlog
from rich.live import Live

from ..config.pipeline import PipelineConfig
from ..config.telemetry import LogConfig, LogFormat
from ..errors import HeadraceError, SparkGone, SparkUnavailable
from ..pipeline import Pipeline, PipelineState, PipelineStatus
from ..pipeline.build import prepare_directory
from ..pipeline.source import Source
from ..postgres.connection import connect
from ..postgres.preflight import Severity, Target, run_checks
from ..stores.contract import PipelineStore
from ..telemetry.logging import configure_logging
from .connecting import connected
from .live_view import OVERHEAD_LINES, Subject, render
from .local_checks import require_startable
from .log_lines import LogLines
from .rates import RateMeter
from .stopping import StopSignals, end_children
from .summary import Summary

__all__ = ["Ended", "Showing", "run_in_foreground"]

_FRAME_S = 0.25
_LEAVE_S = 15.0
"""Seconds that Java gets to end by itself; it takes one."""

_JAVA_ENDED = (SparkGone, SparkUnavailable)

_log = structlog.get_logger("headrace.run")


@dataclass(frozen=True, slots=True)
class Showing:
    """How a command shows what happens. `live`: None for a live view where there is a terminal for it."""

    live: bool | None = None
    stop_timeout_s: float | None = None

    def wants_live_view(self, config: PipelineConfig) -> bool:
        if self.live is not None:
            return self.live
        to_stdout = any(destination.kind == "stdout" for destination in config.lanes.values())
        if os.environ.get("TERM") == "dumb" or not sys.stderr.isatty():
            return False
        # Rows on the same terminal would tear the view apart.
        return not (to_stdout and sys.stdout.isatty())


@dataclass(frozen=True, slots=True)
class Ended:
    """How a pipeline ended: its last status, the error if there was one, the signal if it was stopped."""

    status: PipelineStatus
    error: BaseException | None
    signal: str | None
    was_running: bool


def run_in_foreground(
    config: PipelineConfig, build: Callable[[], tuple[Mapping[str, PipelineStore], Pipeline]], show: Showing
) -> Ended:
    """Build a pipeline and run it until it ends or is stopped. Raises what `build` raises; the rest is in the result.

    The stores are closed in the end, and no process is left. A second signal ends this process on the spot.
    """
    # Whatever keeps us out of the source has one exit code; it is told before the terminal is taken over.
    connected(config.pg_connection, "check", pipeline=config.id).close()
    live = show.wants_live_view(config)
    with ExitStack() as stack:
        # Undone from the last to the first: standard error is put back when nobody writes to it any more.
        stack.callback(_spare_the_pipe)
        lines = stack.enter_context(_lines(config.log, live, force=show.live))
        others = psutil.Process().children()
        signals = stack.enter_context(StopSignals(lines.restore if lines else lambda: None, others))
        stack.callback(end_children, _LEAVE_S, others)
        configure_logging(_log_config(config.log, live), pipeline=config.id)
        _look_at_source(config)
        # As the source is, looked at before Spark is started: copies, which need no store, write here too.
        prepare_directory(config)
        stores, pipeline = build()
        for store in stores.values():
            stack.callback(_closed, store)
        frames = stack.enter_context(_live_frames(config, lines)) if lines else _plain_frames()
        return _run(pipeline, signals, frames, show)


def _look_at_source(config: PipelineConfig) -> None:
    """Before Spark is started, which takes seconds: most mistakes show here. Raises what makes a start impossible."""
    source = Source(config)
    source.tables()
    source.require_own_slot()
    with contextlib.suppress(HeadraceError), connect(config.pg_connection, "check", pipeline=config.id) as connection:
        for found in run_checks(connection, Target(config.pg_connection, config.publication_name)):
            if found.severity is Severity.ERROR:
                _log.warning("the source is not quite ready", check=found.check, found=found.message, hint=found.remedy)
    require_startable(config)


_Frames = Callable[[PipelineStatus, bool], None]


def _run(pipeline: Pipeline, signals: StopSignals, frames: _Frames, show: Showing) -> Ended:
    error: BaseException | None = None
    was_running = told = False
    if signals.asked is None:
        pipeline.start()
    while pipeline.status.state is not PipelineState.NEW:
        if signals.asked and not told:
            told = True
            _log.info("stopping…", signal=signals.asked)
            # It waits for the batch under way; the view goes on meanwhile, and a second signal is heard.
            threading.Thread(target=pipeline.stop, args=(show.stop_timeout_s,), name="stop", daemon=True).start()
        status = pipeline.status
        was_running = was_running or status.state is PipelineState.RUNNING
        frames(status, told)
        try:
            if pipeline.wait(_FRAME_S):
                break
        except BaseException as raised:  # noqa: BLE001 - the caller decides how it is shown
            # A signal to all our processes ends Java too, maybe before the pipeline is told to stop.
            told = told or (signals.asked is not None and isinstance(raised, _JAVA_ENDED))
            error = None if told and isinstance(raised, _JAVA_ENDED) else raised
            break
    frames(pipeline.status, told)
    if error is None and (told or signals.asked):
        _log.info("stopped", signal=signals.asked)
    return Ended(pipeline.status, error, signals.asked, was_running)


@contextmanager
def _lines(config: LogConfig, live: bool, *, force: bool | None) -> Iterator[LogLines | None]:
    if not live:
        yield None
        return
    with LogLines(as_json=config.format is LogFormat.JSON, force_terminal=force) as lines:
        yield lines


@contextmanager
def _live_frames(config: PipelineConfig, lines: LogLines) -> Iterator[_Frames]:
    subject, meter, started = _subject(config), RateMeter(), time.monotonic()
    console = lines.console
    # Drawn by us, not by a thread of rich's: a signal must find no lock held for long.
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as view:

        def frame(status: PipelineStatus, stopping: bool) -> None:
            now = time.monotonic()
            rates = meter.observe(now, status)
            room = (console.width, console.height - OVERHEAD_LINES)
            shown = render(subject, status, rates, seconds=now - started, room=room, stopping=stopping)
            with lines.printing:
                view.update(shown, refresh=True)

        yield frame


def _plain_frames() -> _Frames:
    summary, meter = Summary(), RateMeter()

    def frame(status: PipelineStatus, _stopping: bool) -> None:
        now = time.monotonic()
        summary.observe(now, status, meter.observe(now, status))

    return frame


def _subject(config: PipelineConfig) -> Subject:
    at = config.pg_connection
    kinds = [f"{name} ({one.kind})" if name else one.kind for name, one in config.lanes.items()]
    destination = ", ".join(kinds)
    source = f"{at.username}@{at.host}:{at.port}/{at.name}"
    return Subject(config.id, source, config.publication_name, config.slot_name, destination)


def _log_config(config: LogConfig, live: bool) -> LogConfig:
    # The lines go through a pipe, and what reads it makes JSON readable.
    return config.model_copy(update={"format": LogFormat.JSON}) if live else config


def _closed(store: PipelineStore) -> None:
    with contextlib.suppress(HeadraceError):
        store.close()


def _spare_the_pipe() -> None:
    """Python flushes standard output at its end, and would complain if whoever read it is gone."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
