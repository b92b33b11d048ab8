"""Log lines above a live view: whatever this process or its children write to standard error is printed there.

The receiver, the JVM and its workers have our standard error, and know nothing of a live view. So file descriptor 2 is
a pipe while the view is up, and a thread prints what comes out of it through rich, which keeps the view below.
"""

from __future__ import annotations

import json
import os
import threading
from types import TracebackType
from typing import Any, TextIO

import structlog
from rich.text import Text

from .terminal import SafeConsole

__all__ = ["LogLines", "readable"]

_STDERR = 2
_CHUNK = 65_536
_CLOCK = slice(11, 19)
"""hh:mm:ss of an ISO timestamp."""
_CONSTANT = ("pipeline", "logger")
_FLUSH_S = 2.0
_NOISE = "WARNING: Using incubator modules"
"""Java's first line, whenever Spark starts it."""
_END = b"\0"
"""No text has it: it tells the thread that nothing of interest follows."""


class LogLines:
    """Takes standard error over while its block runs. `console` prints where it went before."""

    def __init__(self, *, as_json: bool = False, force_terminal: bool | None = None) -> None:
        """`as_json`: lines stay as they are; otherwise those that are JSON are made readable."""
        self._as_json = as_json
        self._silent = False
        self._original = os.dup(_STDERR)
        self._file: TextIO = os.fdopen(self._original, "w", buffering=1, encoding="utf-8", errors="replace")
        self.console = SafeConsole(file=self._file, force_terminal=force_terminal)
        self.printing = threading.RLock()
        """Held while something is printed: rich's own locks let a view and a line above it meet on the screen."""
        self._reader, self._writer = os.pipe()
        self._thread = threading.Thread(target=self._print_all, name="log-lines", daemon=True)

    def __enter__(self) -> LogLines:
        os.dup2(self._writer, _STDERR)
        os.close(self._writer)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(_STDERR, _END)
        self._thread.join(_FLUSH_S)
        os.dup2(self._original, _STDERR)
        self._file.close()
        if not self._thread.is_alive():
            os.close(self._reader)

    def restore(self) -> None:
        """Put standard error back, and the cursor, without any lock. Nothing more is printed."""
        self._silent = True
        os.dup2(self._original, _STDERR)
        if self.console.is_terminal:
            os.write(_STDERR, b"\x1b[?25h\r\n")

    def _print_all(self) -> None:
        rest = b""
        while True:
            try:
                got = os.read(self._reader, _CHUNK)
            except OSError:
                return
            *lines, rest = (rest + got).split(b"\n")
            ended = _END in rest or not got
            for line in [*lines, *([rest.rstrip(_END)] if ended else [])]:
                self._print(line.decode(errors="replace").rstrip())
            if ended:
                return

    def _print(self, line: str) -> None:
        if line and not self._silent and not line.startswith(_NOISE):
            text = line if self._as_json else readable(line, colors=self.console.is_terminal)
            with self.printing:
                self.console.print(Text.from_ansi(text), soft_wrap=True)


def readable(line: str, *, colors: bool = False) -> str:
    """A log line in JSON as structlog shows it to a person; any other line as it is."""
    event: Any = None
    if line.startswith("{"):
        try:
            event = json.loads(line)
        except ValueError:
            return line
    if not isinstance(event, dict) or "event" not in event:
        return line
    # One pipeline and one screen: the line is short, so that it stays one.
    event["timestamp"] = str(event.get("timestamp", ""))[_CLOCK]
    short = {name: value for name, value in event.items() if name not in _CONSTANT and value is not None}
    renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
    return str(renderer(None, "", short))
