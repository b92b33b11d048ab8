"""`headrace status`: how a pipeline stands, seen from outside."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..config.load import load_pipeline_config
from ..errors import HeadraceError, StoreError
from .exit_code import ExitCode
from .failing import errors_shown
from .known_store import known_stores, lane_names
from .resync import OneDestination
from .run import ConfigPath
from .terminal import SafeConsole

if TYPE_CHECKING:
    from ..config.pipeline import PipelineConfig
    from ..pipeline.observation import Observation, SourceObserver
    from ..stores import PipelineStore

__all__ = ["status"]

_Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts; with --watch one line at a time.")]
_Watch = Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")]
_Interval = Annotated[float, typer.Option(min=0.1, help="Seconds between two looks, with --watch.")]

_WIDTH = 200


def status(
    config: ConfigPath,
    as_json: _Json = False,
    watch: _Watch = False,
    interval: _Interval = 2.0,
    destination: OneDestination = None,
) -> None:
    """Show how a pipeline stands: tables, states, lag, slot, spool.

    It need not run. Reads the pipeline's store, its source and its spool,
    each as far as it can be reached, and changes nothing. Start it where
    the pipeline was started: a relative data_dir begins there.

    Per table: the state and since when; rows copied; the position up to
    which it is durable at the destination; the WAL written since then;
    and for how long the oldest change has waited that it has not applied.

    For example:

        headrace status pipeline.yaml

        headrace status pipeline.yaml --watch

        headrace status pipeline.yaml --json | jq .tables

    A running pipeline reports to its store every five seconds. One that
    does not any more, hangs, or has a spool that cannot be written, is an
    error here, whatever its tables say.

    Exit codes: 0 all is well; 1 a table is in error, the slot is lost, the
    publication does not exist, or the pipeline hangs or is held up; 2 wrong
    usage or configuration; 3 could not connect to source or store
    (what else is known is shown all the same).
    """
    with errors_shown(config):
        settings = load_pipeline_config(config)
        if not watch:
            raise typer.Exit(_show_once(settings, as_json, destination))
        try:
            _keep_showing(settings, as_json, interval, destination)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.OK) from None


def _show_once(config: PipelineConfig, as_json: bool, destination: str | None) -> ExitCode:
    from .status_view import as_json as json_of  # noqa: PLC0415 - see run: Spark's modules take a second to import
    from .status_view import render  # noqa: PLC0415

    with _Looks(config, destination) as looks:
        seen, store_error = looks.look()
    if as_json:
        typer.echo(json.dumps(json_of(config, seen, store_error), indent=2))
    else:
        _print(render(config, seen, store_error))
    return _code(seen, store_error)


def _keep_showing(config: PipelineConfig, as_json: bool, interval: float, destination: str | None) -> None:
    from .status_view import as_json as json_of  # noqa: PLC0415
    from .status_view import render  # noqa: PLC0415

    console = _console()
    with _Looks(config, destination) as looks:
        if console.is_terminal and not as_json:
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(Group(*render(config, *looks.look())), refresh=True)
                    time.sleep(interval)
        while True:
            if as_json:
                typer.echo(json.dumps(json_of(config, *looks.look())))
            else:
                _print([*render(config, *looks.look()), Text("")])
            time.sleep(interval)


def _print(parts: list[RenderableType]) -> None:
    console = _console()
    for part in parts:
        # Sentences are there to be copied: no breaks of ours in them.
        console.print(part, soft_wrap=isinstance(part, Text))


def _console() -> Console:
    console = SafeConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        # A file or a pipe has no width; rich would squeeze the table into 80 columns.
        console.width = _WIDTH
    return console


class _Looks:
    """Observe a pipeline again and again, over connections that stay open; use it in a `with` block."""

    def __init__(self, config: PipelineConfig, destination: str | None) -> None:
        from ..pipeline.observation import SourceObserver  # noqa: PLC0415

        self._config, self._destination = config, destination
        self._source: SourceObserver = SourceObserver(config)
        self._opened = ExitStack()
        self._stores: dict[str, PipelineStore | None] = {}

    def __enter__(self) -> _Looks:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
        self._source.__exit__()

    def look(self) -> tuple[Observation, HeadraceError | None]:
        """Return what is seen now, and the error that kept the store from being read."""
        from ..pipeline.observation import observe  # noqa: PLC0415

        try:
            # A store that was not there before the pipeline's first start may be there now.
            if not self._stores or None in self._stores.values():
                self._opened.close()
                self._stores = self._opened.enter_context(known_stores(self._config, self._destination))
            return observe(self._config, self._stores, self._source), None
        except StoreError as error:
            self._opened.close()
            self._stores = {}
            nothing = dict.fromkeys(lane_names(self._config, self._destination))
            return observe(self._config, nothing, self._source), error


def _code(seen: Observation, store_error: HeadraceError | None) -> ExitCode:
    if seen.source_error is not None or store_error is not None:
        return ExitCode.CANNOT_CONNECT
    publication_gone = seen.source is not None and seen.source.publication_error is not None
    held_up = bool(seen.problems) or seen.spool_error is not None
    return ExitCode.NOT_WELL if seen.errored or seen.slot_lost or publication_gone or held_up else ExitCode.OK
