"""What the JVM writes to standard error: passed on line by line, without the report of its search for jars.

Lines of stack traces are logged at debug level.

Ivy, which finds the jars, prints dozens of lines at every start and cannot be told not to. They are kept until Spark
runs, and told only if it does not come to that.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

__all__ = ["JavaOutput"]

_REPORT = re.compile(
    # What is indented is Ivy's, unless it is the trace of an exception.
    rb"(::|\t(?!at |\.\.\. )|\s*$|downloading |Ivy Default Cache|The jars for the packages|\s+\["
    rb"|WARNING: Using incubator modules)"
    rb"|.*( added as a dependency| :: resolving)"
)
_TRACE = re.compile(rb"\s+at [\w.$/<>]+\(|\s+\.\.\. \d+ (?:more|common)|Caused by: ")
"""A line of a stack trace. Its first line, before them, says what happened."""
_KEPT_LINES = 60
_NOT_FOUND = re.compile(rb"unresolved dependency|\(not found\)\s*$|Server access error")


_log = structlog.get_logger("headrace.spark")


class JavaOutput:
    """`descriptor` is what the JVM gets as its standard error, inside `writing`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._report: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._thread = threading.Thread(target=self._pass_on, name="java-output", daemon=True)

    @contextmanager
    def writing(self) -> Iterator[int]:
        """The descriptor to start the JVM with; this process's own copy is closed afterwards."""
        self._thread.start()
        try:
            yield self._write
        finally:
            os.close(self._write)

    def problem(self) -> str | None:
        """Why jars were not found, as far as Ivy said."""
        lines = [line.strip().decode(errors="replace") for line in self._report if _NOT_FOUND.search(line)]
        return "; ".join(dict.fromkeys(lines)) or None

    def join(self, timeout: float) -> None:
        """Wait until everything was passed on, once nobody writes any more."""
        self._thread.join(timeout)

    def _pass_on(self) -> None:
        with os.fdopen(self._read, "rb") as lines:
            for line in lines:
                if _REPORT.match(line):
                    self._report.append(line)
                elif _TRACE.match(line):
                    _log.debug("Java: %s", line.decode(errors="replace").rstrip())
                else:
                    # The stream of the moment: a live view may have put itself in its place.
                    sys.stderr.write(line.decode(errors="replace"))
                    sys.stderr.flush()
