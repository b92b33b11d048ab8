"""The terminal: whether somebody can be asked, and a console that names from the source cannot steer."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..telemetry.redaction import escape_unprintable

__all__ = ["SafeConsole", "on_terminal", "say"]


class SafeConsole(Console):
    """A console that shows characters as escapes which would steer the terminal: anybody names tables at the source.

    Line breaks are a part of its layout. Escape names, and texts with names in them, before they are printed.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = escape_unprintable(segment.text, keep_line_breaks=True)
            yield segment if segment.control else segment._replace(text=text)


def say(text: str, *, err: bool = False) -> None:
    """Print a line, which names from the source cannot make two."""
    typer.echo(escape_unprintable(text), err=err)


def on_terminal() -> bool:
    """Whether standard input is a terminal: only then is a question answered by a person."""
    return sys.stdin.isatty()
