"""Where the `headrace` command begins: Ctrl-C is quiet before there is anything else to hear it.

An exception out of a signal handler would come up in the middle of some library's import: a traceback at best, at worst
a library that says it is not installed properly. What this module imports at its top, Python has loaded by itself.
"""

from __future__ import annotations

import os

__all__ = ["QuietInterrupts", "main"]

_STOPPED = 130
"""`ExitCode.CUT_OFF`, which would have to be imported."""


class QuietInterrupts:
    """While the block runs, which must have nothing to clean up, Ctrl-C ends the process at once, with one line."""

    def __enter__(self) -> QuietInterrupts:
        import signal  # noqa: PLC0415
        import threading  # noqa: PLC0415

        # Only there can it be set, and only there does Python run handlers.
        self._in_charge = threading.current_thread() is threading.main_thread()
        if self._in_charge:
            self._before = signal.signal(signal.SIGINT, _leave)
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_charge:
            import signal  # noqa: PLC0415

            signal.signal(signal.SIGINT, self._before)


def main() -> None:
    """Run the command that the arguments name, and leave with its exit code."""
    try:
        with QuietInterrupts():
            from .main import app  # noqa: PLC0415 - see above
        try:
            app()
        finally:
            # Python winds up from here on, and would show what interrupts it.
            QuietInterrupts().__enter__()
    except KeyboardInterrupt:
        _leave()


def _leave(*_: object) -> None:
    os.write(2, b"stopped\n")
    # Python's own end would wait for imports under way, and complain of them.
    os._exit(_STOPPED)
