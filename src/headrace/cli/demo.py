"""`headrace demo`: a shop in a Postgres of its own, carried into a lakehouse under live traffic, and compared."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..config.pipeline import PipelineConfig
from ..demo.interrupts import Interrupted, Interrupts
from ..free_memory import arrow_by_malloc
from .exit_code import ExitCode
from .failing import errors_shown
from .stopping import end_children
from .terminal import SafeConsole

if TYPE_CHECKING:
    from ..demo.proof import TableProof
    from ..demo.run import DemoReport, Frame
    from ..pipeline import PipelineStatus

__all__ = ["demo"]


class _Kind(StrEnum):
    """What there is, of `demo.lakehouses`, which comes with modules that take a while to import."""

    ICEBERG = "iceberg"
    DELTA = "delta"
    DUCKDB = "duckdb"
    DUCKLAKE = "ducklake"


_LINE_S = 5.0
_LEAVE_S = 15.0
"""Seconds that Java gets to end by itself; it takes one."""

_Directory = Annotated[
    Path, typer.Option("--dir", help="Where everything goes. Only a directory of an earlier demo is emptied.")
]
_Rows = Annotated[int, typer.Option(min=1_000, max=20_000_000, help="Rows in the shop, about.")]
_Seconds = Annotated[float, typer.Option(min=0, help="Seconds of live traffic after the copy.")]
_Destination = Annotated[
    _Kind, typer.Option(help="Where the shop is carried to: which lakehouse, or a DuckDB file.", show_choices=True)
]
_Keep = Annotated[bool, typer.Option("--keep", help="Go on until Ctrl-C, then compare. A second Ctrl-C only stops.")]


def demo(
    directory: _Directory = Path("headrace-demo"),
    rows: _Rows = 200_000,
    seconds: _Seconds = 30,
    keep: _Keep = False,
    destination: _Destination = _Kind.ICEBERG,
) -> None:
    r"""See it work: a small shop in a Postgres of its own, carried into a lakehouse under live traffic, and compared.

    Nothing outside the directory is touched. All rows of both sides are compared in the end, the lakehouse's read by
    others' code. The tables stay; the server and everything else that was started is stopped. Ctrl-C stops at any time.

    Needs Java 17 or 21, and the packages of headrace\[demo] and of the destination's extra, such as headrace\[iceberg].

    Exit codes: 0 source and lakehouse are equal, 1 they are not, 2 wrong usage, 4 ended by an error, 130 stopped.
    """
    console = SafeConsole()
    with errors_shown(), Interrupts() as interrupts:
        try:
            # Spark's modules take a second to import: only who runs a pipeline waits for them.
            with arrow_by_malloc():
                from ..demo.run import DemoSettings, run_demo  # noqa: PLC0415

            report = run_demo(
                DemoSettings(directory, rows, seconds, keep, destination.value), _Screen(console), interrupts
            )
        except Interrupted:
            _hush()
            console.print("stopped, with all that was started", highlight=False)
            raise typer.Exit(ExitCode.CUT_OFF) from None
        finally:
            end_children(_LEAVE_S)
        _show(console, report)
        if not report.equal:
            raise typer.Exit(ExitCode.NOT_WELL)


def _hush() -> None:
    """Threads that were cut off complain on standard error until the process is gone."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 2)


class _Screen:
    """The demo on a terminal, or as lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._on_terminal = console.is_terminal and not console.is_dumb_terminal

    def done(self, what: str, seconds: float) -> None:
        self._console.print(f"[green]✓[/] {escape(what)} [dim]{seconds:.1f} s[/]", highlight=False, soft_wrap=True)

    def doing(self, what: str) -> AbstractContextManager[object]:
        return self._console.status(f"{what}…") if self._on_terminal else nullcontext()

    def live(self, config: PipelineConfig) -> AbstractContextManager[Frame]:
        return self._live_view(config) if self._on_terminal else self._lines()

    @contextmanager
    def _live_view(self, config: PipelineConfig) -> Iterator[Frame]:
        from .live_view import OVERHEAD_LINES, Subject, render  # noqa: PLC0415 - it comes with Spark's modules
        from .rates import RateMeter  # noqa: PLC0415

        assert config.destination is not None
        at = config.pg_connection
        source = f"{at.host}:{at.port}/{at.name}"
        subject = Subject(config.id, source, config.publication_name, config.slot_name, config.destination.kind)
        meter, began = RateMeter(), time.monotonic()
        with Live(console=self._console, auto_refresh=False, transient=True) as view:

            def frame(status: PipelineStatus, doing: str) -> None:
                now = time.monotonic()
                room = (self._console.width, self._console.height - OVERHEAD_LINES)
                shown = render(subject, status, meter.observe(now, status), seconds=now - began, room=room)
                view.update(Group("", shown, Text(doing, "bold")), refresh=True)

            yield frame

    @contextmanager
    def _lines(self) -> Iterator[Frame]:
        from .live_view import state_counts  # noqa: PLC0415

        due = time.monotonic()

        def frame(status: PipelineStatus, doing: str) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + _LINE_S
                tables = f" · {state_counts(status)}" if status.tables else ""
                self._console.print(f"  {escape(doing)}{tables}", highlight=False, soft_wrap=True)

        yield frame


def _show(console: Console, report: DemoReport) -> None:
    table = Table(header_style="dim")
    for name, justify in (("table", "left"), ("source rows", "right"), ("lakehouse rows", "right"), ("equal", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for proof in report.proofs:
        verdict = "[green]yes[/]" if proof.equal else "[bold red]no[/]"
        table.add_row(proof.table, f"{proof.source_rows:,}", f"{proof.lakehouse_rows:,}", verdict)
    console.print(table)
    for proof in report.proofs:
        if not proof.equal:
            console.print(f"[bold red]{proof.table}[/] {escape(_difference(proof))}", highlight=False, soft_wrap=True)
    if report.equal:
        rows = sum(proof.source_rows for proof in report.proofs)
        console.print(f"[bold green]The lakehouse equals the source[/]: {rows:,} rows, every value.", highlight=False)
        places = f"{report.lakehouse.where(report.directory)}\n\nA query to try:\n"
        console.print(places, highlight=False, soft_wrap=True, markup=False)
        console.print(report.lakehouse.query(report.directory), highlight=False, soft_wrap=True, markup=False)
    log = report.directory / "headrace.log"
    console.print(f"\n{report.seconds:.0f} s in all; the log is {log}", highlight=False, soft_wrap=True, markup=False)


def _difference(proof: TableProof) -> str:
    if proof.columns:
        return f"other columns: {proof.columns}"
    first = f"; first: {'; '.join(proof.keys)}" if proof.keys else ""
    return f"{proof.only_in_source:,} rows only in the source, {proof.only_in_lakehouse:,} only in the lakehouse{first}"
