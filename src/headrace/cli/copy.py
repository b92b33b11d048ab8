"""`headrace copy`: the tables of a publication as they are now, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from ..errors import PipelineStateError
from ..free_memory import arrow_by_malloc
from ..remedies import RESYNC, name_table
from ..table_state import State
from .entry import QuietInterrupts
from .exit_code import ExitCode
from .failing import errors_shown
from .figures import counted, duration
from .known_store import known_stores
from .run import ConfigPath, Live, LogFormatOption, LogLevelOption, StopTimeout, ended_by_error, load

if TYPE_CHECKING:
    from ..config.pipeline import PipelineConfig
    from ..pipeline import Pipeline, PipelineStatus
    from ..stores.contract import PipelineStore

__all__ = ["copy"]

_COPIED = frozenset({State.FINISHED_COPY})


def copy(
    config: ConfigPath,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    live: Live = None,
    stop_timeout: StopTimeout = None,
) -> None:
    """Copy all tables of a publication once, and leave: a backfill.

    No replication slot is needed. Each table is copied as it is at one
    moment, not all at the same one. What an earlier copy left at the
    destination is replaced. Nothing is remembered: a copy that was stopped
    starts over, and `headrace run` copies the tables anew. While the
    pipeline runs it is refused: copy a table again with `headrace resync`.

    For example:

        headrace copy pipeline.yaml

        headrace copy pipeline.yaml --no-live 2> copy.log

    Exit codes: 0 all tables copied; 1 tables failed, or it was stopped
    before the end; 2 wrong usage or configuration; 3 could not connect to
    source or store; 4 ended by an error; 5 a run of the pipeline has taken
    over; 130 stopped immediately.
    """
    with errors_shown(config):
        settings = load(config, log_format, log_level, mode="copy_only")
        # Spark's modules take a second to import: only who runs a pipeline waits for them.
        with QuietInterrupts(), arrow_by_malloc():
            from ..pipeline import Pipeline  # noqa: PLC0415
            from ..pipeline.build import build_destinations  # noqa: PLC0415
            from ..stores import MemoryStore  # noqa: PLC0415
            from .running import Showing, run_in_foreground  # noqa: PLC0415

        def build() -> tuple[Mapping[str, PipelineStore], Pipeline]:
            _refuse_if_streaming(settings)
            destinations = build_destinations(settings)
            stores: dict[str, PipelineStore] = {name: MemoryStore() for name in destinations}
            return stores, Pipeline(settings, stores, destinations)

        ended = run_in_foreground(settings, build, Showing(live, stop_timeout))
        if ended.status.tables or ended.error is None:
            typer.echo(_result(ended.status), err=True)
        if ended.error is not None:
            ended_by_error(ended, ended.error)
        if ended.signal is not None and not _complete(ended.status):
            raise typer.Exit(ExitCode.NOT_WELL)


def _refuse_if_streaming(config: PipelineConfig) -> None:
    """Raise if a streaming pipeline owns these tables: its positions would no longer fit what it finds there."""
    with known_stores(config) as stores:
        known = [store for store in stores.values() if store is not None]
        states = [(table, state) for store in known for table, state in store.get_table_states().items()]
        names = {
            version.table_id: version.schema.table.name for store in known for version in store.get_table_schemas()
        }
    streaming = [table for table, state in states if state.state is not State.INIT]
    if streaming:
        msg = f"pipeline {config.id} streams {len(streaming)} tables to this destination already"
        hint = "give the copy another id and another destination"
        copied = sorted({str(names[table]) for table in streaming if table in names})
        if copied:
            hint = f"copy its tables again, of which this is the first: {name_table(RESYNC, copied[0])}; or {hint}"
        raise PipelineStateError(msg, hint=hint)


def _complete(status: PipelineStatus) -> bool:
    return bool(status.tables) and all(table.state.state in _COPIED for table in status.tables.values())


def _result(status: PipelineStatus) -> str:
    tables = status.tables.values()
    done = [table for table in tables if table.state.state in _COPIED]
    rows = counted(sum(table.copy.rows for table in done))
    longest = duration(max((table.copy.seconds for table in done), default=0.0))
    return f"{len(done)} of {len(tables)} tables copied: {rows} rows; the longest took {longest}"
