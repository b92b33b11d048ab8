"""`headrace replay`: a stored change log into another destination."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..config.load import load_pipeline_config
from ..config.parquet import ParquetConfig
from ..config.transforms import TransformsConfig
from ..errors import ConfigError
from ..lsn import Lsn
from ..telemetry.redaction import escape_unprintable
from .entry import QuietInterrupts
from .exit_code import ExitCode
from .failing import errors_shown
from .figures import counted
from .run import ConfigPath
from .terminal import SafeConsole, say

if TYPE_CHECKING:
    from ..config.destination import DestinationConfig
    from ..config.pipeline import PipelineConfig
    from ..destinations.contract import DestinationContext
    from ..destinations.parquet import ParquetLog
    from ..pipeline.replaying import Positions, Replayed, Until
    from ..stores.contract import StateStore

__all__ = ["replay"]

_LEAVE_S = 15.0
"""Seconds that Java gets to end by itself; it takes one."""

_Source = Annotated[
    str,
    typer.Argument(
        metavar="LOG",
        show_default=False,
        help="Where the log lies: the location of a destination of kind parquet, a directory or a URI.",
    ),
]
_Destination = Annotated[
    str | None,
    typer.Option(show_default="the only one", help="Which of the configuration's destinations is written to."),
]
_UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        show_default="the end",
        help="The last commit to replay: an LSN (16/B374D848), or a moment (2026-11-16T12:00:00+00:00; UTC if it says "
        "nothing else), before the first commit that came later.",
    ),
]
_Fresh = Annotated[bool, typer.Option("--fresh", help="Replace all tables, whatever rows the destination has.")]


def replay(
    source: _Source,
    config: ConfigPath,
    destination: _Destination = None,
    until: _UntilOption = None,
    fresh: _Fresh = False,
) -> None:
    """Write a change log of the destination parquet to another destination.

    First the rows of the initial copies, then every change in commit
    order, batch by batch as the pipeline wrote them: what comes out is
    what a pipeline straight to that destination would have written. A
    replay that was stopped or killed resumes at the destination's position;
    the next one brings what the log has got since. With --until, all tables are as they were at one moment. A
    table that the log was begun anew with, by a resync, is written anew.

    The configuration's transforms apply to the log as to a source. If it
    has the log among its destinations, they are in the log already, and
    do not apply again.

    Credentials for the log are those of the configuration's destination
    with that location, if there is one; else what the machine has.

    For example:

        headrace replay ./changes lakehouse.yaml

        headrace replay s3://lake/changes lakehouse.yaml --until 2026-11-16T12:00:00

    It is refused while the pipeline that owns the destination's tables
    runs. The source is asked for that only, and may be out of reach.

    Exit codes: 0 done; 1 stopped by a signal before the end; 2 wrong usage
    or configuration; 4 ended by an error; 5 a run of the pipeline has taken
    over; 130 stopped immediately.
    """
    with errors_shown():
        settings = load_pipeline_config(config)
        name = _chosen(settings, destination)
        moment = _until(until)
        with QuietInterrupts():
            from ..destinations.parquet import open_log  # noqa: PLC0415
        log = open_log(source, _storage_options(settings, source))
        _refuse_itself(settings.lanes[name], source)
        transforms = _transforms(settings, source)
        finished, reached = _replayed(settings.model_copy(update={"transforms": transforms}), name, log, moment, fresh)
        where = _positions(reached)
        if not finished:
            say(f"stopped{where}; start it again to go on", err=True)
            raise typer.Exit(ExitCode.NOT_WELL)
        say(f"replayed{where}", err=True)


def _positions(reached: Positions) -> str:
    """How far a replay is, as a part of a sentence: each table has its own position."""
    known = sorted((lsn, name) for name, lsn in reached.items() if lsn is not None)
    if not known:
        return ""
    (lowest, first), (highest, last) = known[0], known[-1]
    without = len(reached) - len(known)
    beside = f", and no changes of {counted(without)} table{'' if without == 1 else 's'}" if without else ""
    if lowest == highest:
        return f" up to {highest}{beside}"
    return f", each table up to its own position: {lowest} ({first}) to {highest} ({last}){beside}"


def _chosen(settings: PipelineConfig, destination: str | None) -> str:
    names = list(settings.lanes)
    if not names:
        raise ConfigError("the configuration names no destination", hint="add a section destination with a kind")
    if destination is None and len(names) == 1:
        return names[0]
    if destination is None or destination not in names:
        known = ", ".join(name for name in names if name) or "one without a name: leave the option out"
        raise typer.BadParameter(f"the configuration has {known}", param_hint="--destination")
    return destination


def _until(text: str | None) -> Until | None:
    if text is None:
        return None
    try:
        return Lsn.parse(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("neither an LSN nor a moment as ISO 8601 has it", param_hint="--until") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _storage_options(settings: PipelineConfig, source: str) -> Mapping[str, Any]:
    """Those of the destination that writes the log, if the configuration has it."""
    for section in settings.lanes.values():
        if _writes(section, source):
            return ParquetConfig.model_validate(section.options).storage_options
    return {}


def _transforms(settings: PipelineConfig, source: str) -> TransformsConfig:
    """What is still to be done to the rows of the log: one that the configuration itself writes has it behind it."""
    written = any(_writes(section, source) for section in settings.lanes.values())
    return TransformsConfig() if written else settings.transforms


def _writes(section: DestinationConfig, source: str) -> bool:
    """Whether this is the destination whose log is at `source`."""
    if section.kind != "parquet":
        return False
    return ParquetConfig.model_validate(section.options).place() == ParquetConfig(location=source).place()


def _refuse_itself(section: DestinationConfig, source: str) -> None:
    if _writes(section, source):
        msg = "the log cannot be replayed into itself"
        raise ConfigError(msg, hint="name another destination with --destination, or another configuration")


def _replayed(
    settings: PipelineConfig, name: str, log: ParquetLog, until: Until | None, fresh: bool
) -> tuple[bool, Positions]:
    with QuietInterrupts():
        import psutil  # noqa: PLC0415

        from ..destinations.transforms import transformed  # noqa: PLC0415
        from ..destinations.translated import Translated  # noqa: PLC0415
        from ..pipeline.build import build_destinations, prepare_directory, spark_config  # noqa: PLC0415
        from ..pipeline.replaying import Replay  # noqa: PLC0415
        from ..spark.session import open_session  # noqa: PLC0415
        from ..stores import SqliteStore  # noqa: PLC0415
        from ..telemetry.logging import configure_logging  # noqa: PLC0415
        from .stopping import StopSignals, end_children  # noqa: PLC0415

    configure_logging(settings.log, pipeline=settings.id)
    destination = build_destinations(settings)[name]
    # Not the pipeline's own store: what a replay writes is not what it streams.
    path = settings.directory / f"replay-{name or destination.name}.db"
    prepare_directory(settings)
    others = psutil.Process().children()
    try:
        with (
            StopSignals(spared=others) as signals,
            _shown() as progress,
            open_session(spark_config(settings, destination)) as spark,
        ):
            store = SqliteStore(path, settings.id)
            try:
                context = _context(settings, store, spark)
                asked = lambda: signals.asked is not None  # noqa: E731
                outer = Translated(transformed(destination, settings.transforms))
                replay = Replay(log, outer, context, store, progress=progress, stopping=asked)
                reached = replay.run(until=until, fresh=fresh)
            finally:
                store.close()
            return signals.asked is None, reached
    finally:
        end_children(_LEAVE_S, others)


def _context(settings: PipelineConfig, store: StateStore, spark: Any) -> DestinationContext:
    from ..destinations.contract import DestinationContext  # noqa: PLC0415
    from ..pipeline.build import name_run  # noqa: PLC0415
    from ..pipeline.source import Source  # noqa: PLC0415

    return DestinationContext(
        settings.id,
        store,
        spark,
        quarantine=settings.quarantine,
        run_id=name_run("replay"),
        check_owner=Source(settings).require_stopped,
    )


@contextmanager
def _shown() -> Iterator[Callable[[Replayed], None]]:
    """A bar on a terminal; elsewhere nothing."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=SafeConsole(stderr=True)) as bar:
        task = bar.add_task("replaying", total=None)

        def progress(replayed: Replayed) -> None:
            what = escape_unprintable(replayed.table or "") or f"{counted(replayed.total)} commits"
            bar.update(task, total=replayed.total, completed=replayed.done, description=what)

        yield progress
