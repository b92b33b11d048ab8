"""The terminal: whether somebody can be asked, and a console that names from the source cannot steer."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..telemetry.redaction import escape_unprintable

__all__ = ["SafeConsole", "on_terminal"]


class SafeConsole(Console):
    """A console that shows characters as escapes which would steer the terminal: anybody names tables at the source."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_unprintable(segment.text))


def on_terminal() -> bool:
    """Whether standard input is a terminal: only then is a question answered by a person."""
    return sys.stdin.isatty()
