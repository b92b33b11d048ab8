"""What a person sees of a running pipeline on a terminal. Pure: a status in, something that rich can print out.

`running` asks for it several times a second. Where there are more tables than lines, those that need attention are
shown (failed, being copied, catching up), then the busiest; one line sums up the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..errors import RetryPolicy
from ..pipeline.status import DestinationState, DestinationStatus, PipelineState, PipelineStatus, TableStatus
from ..remedies import name_file
from ..table_state import State
from ..telemetry.redaction import escape_unprintable
from .figures import counted, duration, rate, size
from .rates import Rates

__all__ = ["OVERHEAD_LINES", "Subject", "chosen", "render", "state_counts"]

OVERHEAD_LINES = 9
"""Lines of the view that are no table: header, headings, summary, and room for a log line above."""

_BAR_WIDTH = 12
_WIDE = 100
"""Columns from which on there is room for positions."""
_COLOURS = {
    State.INIT: "dim",
    State.DATA_SYNC: "cyan",
    State.FINISHED_COPY: "cyan",
    State.SYNC_WAIT: "cyan",
    State.CATCHUP: "cyan",
    State.SYNC_DONE: "green",
    State.READY: "green",
    State.ERRORED: "bold red",
}
_PIPELINE_COLOURS = {PipelineState.RUNNING: "green", PipelineState.WAITING: "yellow", PipelineState.FAILED: "bold red"}
_PIPELINE_WORDS = {PipelineState.WAITING: "waiting for the publication, which does not exist"}
_ATTENTION = (State.ERRORED, State.DATA_SYNC, State.CATCHUP, State.SYNC_WAIT, State.FINISHED_COPY)
_WAITING = DestinationState.WAITING
_COPYING = frozenset({State.DATA_SYNC})
_WORDS = {State.DATA_SYNC: "copying", State.FINISHED_COPY: "copied", State.INIT: "waiting"}


@dataclass(frozen=True, slots=True)
class Subject:
    """What does not change while a pipeline runs. `source` is without password."""

    pipeline: int
    source: str
    publication: str
    slot: str
    destination: str


def render(
    subject: Subject,
    status: PipelineStatus,
    rates: Rates,
    *,
    seconds: float = 0.0,
    room: tuple[int, int] = (120, 20),
    stopping: bool = False,
) -> RenderableType:
    """The whole view, of the pipeline as it is after running for `seconds`; `room` is columns, and lines for tables."""
    width, lines = room
    parts: list[RenderableType] = [*_header(subject, status, seconds, stopping)]
    troubles = [*_troubles(status.destinations.values())]
    parts += troubles
    if status.tables:
        shown = chosen(status.tables.values(), rates, lines - len(troubles))
        parts += [Text(""), _tables(shown, rates, wide=width >= _WIDE), _summary(status, rates, len(shown))]
    return Group(*parts)


def chosen(tables: Iterable[TableStatus], rates: Rates, limit: int) -> list[TableStatus]:
    """The tables to show, most interesting first, by name where they are equally so."""

    def interest(table: TableStatus) -> tuple[int, float, str]:
        state = table.state.state
        attention = _ATTENTION.index(state) if state in _ATTENTION else len(_ATTENTION)
        # Steps of ten, so that tables of about the same rate do not change places all the time.
        busy = 0 if attention < len(_ATTENTION) else len(str(int(rates.of(table.key))))
        return attention, -busy, table.key

    return sorted(tables, key=interest)[: max(1, limit)]


def state_counts(status: PipelineStatus) -> str:
    """`2 ready, 1 copying`: in the order of a table's life."""
    counts = Counter(table.state.state for table in status.tables.values())
    return ", ".join(f"{counts[state]} {_word(state)}" for state in State if counts[state])


def _header(subject: Subject, status: PipelineStatus, seconds: float, stopping: bool) -> list[Text]:
    stopping = stopping and status.state not in (PipelineState.STOPPED, PipelineState.FAILED)
    state = "stopping…" if stopping else _PIPELINE_WORDS.get(status.state, status.state.value)
    colour = "yellow" if stopping else _PIPELINE_COLOURS.get(status.state, "cyan")
    first = Text.assemble(("headrace", "bold"), f"  pipeline {subject.pipeline}  ", (state, colour))
    first.append(f"  {duration(seconds)}", "dim")
    if stopping:
        first.append("  finishing the batch under way; once more to stop at once", "dim")
    places = (("source", subject.source), ("publication", subject.publication), ("slot", subject.slot))
    second = _named(*places, ("destination", subject.destination))
    receiver = status.receiver.state
    if status.receiver.problem is not None:
        receiver = f"{receiver} ({status.receiver.problem.message})"
    lag = f"{size(status.lag_bytes)}, {duration(status.lag_seconds)}"
    memory = f"{status.memory_used_ratio:.0%}" + (" (reading pauses)" if status.memory_short else "")
    third = _named(
        ("lag", lag), ("spool", size(status.spool_bytes)), ("memory", memory), ("applied", str(status.applied)),
        ("receiver", receiver),
    )  # fmt: skip
    return [first, second, third]


def _troubles(destinations: Iterable[DestinationStatus]) -> Iterator[Text]:
    """A line for each of several destinations that is out of order."""
    for one in destinations:
        if one.error is None:
            continue
        again = f"starts again by itself (failed {one.attempts} times)" if one.state is _WAITING else one.state.value
        said = f"{one.name} {again}: {' '.join(one.error.split())}"
        remedy = f" → {name_file(one.hint)}" if one.hint else ""
        yield Text.assemble((said, "red"), (escape_unprintable(remedy), "green"), no_wrap=True, overflow="ellipsis")


def _named(*pairs: tuple[str, str]) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for index, (name, value) in enumerate(pairs):
        text.append(f"{'   ' if index else ''}{name} ", "dim")
        text.append(value)
    return text


def _tables(shown: list[TableStatus], rates: Rates, *, wide: bool) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("table", ratio=2, no_wrap=True, overflow="ellipsis")
    table.add_column("state", width=13, no_wrap=True)
    table.add_column("", ratio=5, no_wrap=True, overflow="ellipsis")
    table.add_column("rate", width=11, justify="right", no_wrap=True)
    if wide:
        table.add_column("position", width=17, justify="right", no_wrap=True)
    for one in shown:
        state = one.state.state
        cells = [
            Text(escape_unprintable(one.key)),
            Text(_word(state), _COLOURS[state]),
            _progress(one),
            Text(rate(rates.of(one.key))),
        ]
        if wide:
            cells.append(Text(str(one.position) if one.position else "-", "dim"))
        table.add_row(*cells)
    return table


def _progress(table: TableStatus) -> RenderableType:
    state, copy = table.state, table.copy
    if state.state is State.ERRORED:
        return _failure(table)
    if state.state in _COPYING:
        return _bar(table)
    said = []
    if table.changes:
        said.append(f"{counted(table.changes)} changes")
    if copy.rows:
        said.append(f"{counted(copy.rows)} rows copied")
    return Text(", ".join(said), "" if table.changes else "dim")


def _failure(table: TableStatus) -> Text:
    state = table.state
    again = f"tries again (failed {table.attempts} times): " if state.retry_policy is RetryPolicy.TIMED else ""
    reason = " ".join((state.reason or "").split())
    remedy = f" → {name_file(state.solution)}" if state.solution else ""
    return Text.assemble((f"{again}{reason}", "red"), (remedy, "green"), no_wrap=True, overflow="ellipsis")


def _bar(table: TableStatus) -> RenderableType:
    copy = table.copy
    done = _share(table)
    bar = ProgressBar(total=1.0, completed=done or 0.0, width=_BAR_WIDTH)
    of = f" of ~{counted(copy.estimated_rows)}" if copy.estimated_rows else ""
    percent = "" if done is None else f"{done:4.0%}  "
    left = "" if copy.seconds_left is None else f"  {duration(copy.seconds_left)} left"
    line = Table.grid(padding=(0, 1))
    line.add_row(bar, Text(f"{percent}{counted(copy.rows)}{of} rows{left}", no_wrap=True, overflow="ellipsis"))
    return line


def _share(table: TableStatus) -> float | None:
    """How much of a copy is done; None when nobody knows yet."""
    copy = table.copy
    by_ranges = copy.ranges_done / copy.ranges if copy.ranges else None
    # The estimate is the planner's and may be far off; ranges are counted, but there may be one only.
    by_rows = min(1.0, copy.rows / copy.estimated_rows) if copy.estimated_rows and copy.rows else None
    shares = [share for share in (by_ranges, by_rows) if share]
    return min(shares, default=None)


def _summary(status: PipelineStatus, rates: Rates, shown: int) -> Text:
    tables = status.tables.values()
    hidden = len(tables) - shown
    text = Text(no_wrap=True, overflow="ellipsis")
    if hidden:
        text.append(f"… and {hidden} more  ", "dim")
    text.append(f"{len(tables)} table{'s' if len(tables) > 1 else ''}: {state_counts(status)}")
    rows, changes = sum(table.copy.rows for table in tables), sum(table.changes for table in tables)
    if rows:
        text.append(f" · {counted(rows)} rows copied ({rate(sum(rates.rows.values()))})")
    if changes or not rows:
        text.append(f" · {counted(changes)} changes applied ({rate(sum(rates.changes.values()))})")
    return text


def _word(state: State) -> str:
    return _WORDS.get(state, state.value.replace("_", " "))
