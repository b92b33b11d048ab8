"""`headrace run`: a pipeline in the foreground, until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ..config.load import load_pipeline_config
from ..config.telemetry import LogFormat, LogLevel
from ..errors import PipelineError
from ..free_memory import arrow_by_malloc
from .entry import QuietInterrupts
from .exit_code import ExitCode
from .failing import errors_shown, exit_code, fail

if TYPE_CHECKING:
    from ..config.pipeline import PipelineConfig
    from ..pipeline import Pipeline
    from ..stores.contract import PipelineStore
    from .running import Ended

__all__ = ["ConfigPath", "Live", "LogFormatOption", "LogLevelOption", "StopTimeout", "ended_by_error", "load", "run"]

ConfigPath = Annotated[
    Path, typer.Argument(metavar="PIPELINE.YAML", show_default=False, help="The pipeline's configuration.")
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option("--log-format", show_default=False, help="How log lines look. Overrules log.format."),
]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option("--log-level", show_default=False, help="The least severity that is logged. Overrules log.level."),
]
Live = Annotated[
    bool | None,
    typer.Option("--live/--no-live", show_default="live on a terminal", help="Whether to show the tables at work."),
]
StopTimeout = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        show_default="as long as it takes",
        help="Seconds for the batch under way when a signal stops the pipeline; what takes longer is cut off and done "
        "again at the next start.",
    ),
]


def run(
    config: ConfigPath,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    live: Live = None,
    stop_timeout: StopTimeout = None,
) -> None:
    """Run a pipeline: copy a publication's tables, then stream their changes.

    On a terminal a live view shows the tables, with log lines above it;
    elsewhere there are log lines only, as JSON. Both go to standard error.

    Ctrl-C or SIGTERM finishes the batch under way, stores the progress and
    ends. A second one ends at once, which costs nothing but that batch's
    work. A pipeline that was stopped, or killed, resumes where its
    destination stands.

    For example:

        headrace run pipeline.yaml

        headrace run pipeline.yaml --log-level debug 2> pipeline.log

        HEADRACE__PG_CONNECTION__PASSWORD=… headrace run pipeline.yaml

    Exit codes: 0 stopped by a signal, in order; 1 a copy_only pipeline
    could not copy all tables; 2 wrong usage or configuration; 3 could not
    connect to source or store; 4 ended by an error; 5 another run has
    taken over; 130 stopped immediately.
    """
    with errors_shown(config):
        settings = load(config, log_format, log_level)
        # Spark's modules take a second to import: only who runs a pipeline waits for them.
        with QuietInterrupts(), arrow_by_malloc():
            from ..pipeline import Pipeline  # noqa: PLC0415
            from ..pipeline.build import build_destinations, build_stores  # noqa: PLC0415
            from .running import Showing, run_in_foreground  # noqa: PLC0415

        def build() -> tuple[Mapping[str, PipelineStore], Pipeline]:
            destinations = build_destinations(settings)
            stores = build_stores(settings)
            return stores, Pipeline(settings, stores, destinations)

        ended = run_in_foreground(settings, build, Showing(live, stop_timeout))
        if ended.error is not None:
            ended_by_error(ended, ended.error)


def load(path: Path, log_format: LogFormat | None, log_level: LogLevel | None, **overrides: Any) -> PipelineConfig:
    """The configuration, with what the command line overrules in it."""
    log = {name: value.value for name, value in (("format", log_format), ("level", log_level)) if value is not None}
    return load_pipeline_config(path, **overrides, **({"log": log} if log else {}))


def ended_by_error(ended: Ended, error: BaseException) -> NoReturn:
    """Say what ended the pipeline, and leave with the code for it."""
    # Of a pipeline that has run, an error of any kind means that it ended; before, the kind says why it did not start.
    if type(error) is PipelineError:
        fail(error, ExitCode.NOT_WELL)
    code = exit_code(error)
    fail(error, ExitCode.PIPELINE_FAILED if ended.was_running and code is not ExitCode.FENCED else code)
