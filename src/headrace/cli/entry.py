"""Where the `headrace` command begins: passwords leave the process list, and Ctrl-C is quiet from the first moment.

An exception out of a signal handler would come up in the middle of some library's import: a traceback at best, at worst
a library that says it is not installed properly. What this module imports at its top, Python has loaded by itself.
"""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["QuietInterrupts", "main", "without_password"]

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
            _hide_passwords()
            # What is imported stays: looking for garbage among it takes a tenth of the start.
            gc.disable()
            from .main import build_app  # noqa: PLC0415 - see above

            app = build_app(sys.argv[1] if len(sys.argv) > 1 else None)
            gc.freeze()
            gc.enable()
        try:
            app()
        finally:
            # Python winds up from here on, and would show what interrupts it.
            QuietInterrupts().__enter__()
    except KeyboardInterrupt:
        _leave()


def _hide_passwords() -> None:
    """Start this process again without the password that its arguments hold, which all users can see; keep the pid."""
    if not any("password" in text or "://" in text for text in sys.argv[1:]):
        return
    given = sys.orig_argv[-len(sys.argv) + 1 :]
    hidden = [without_password(text) for text in given]
    passwords = [password for _, password in hidden if password is not None]
    if passwords:
        command = [sys.executable, *sys.orig_argv[1 : -len(given)], *(text for text, _ in hidden)]
        os.execve(sys.executable, command, {**os.environ, "PGPASSWORD": passwords[-1]})  # noqa: S606


def without_password(text: str) -> tuple[str, str | None]:
    """Split a connection string, or an option with one, into the string without its password, and the password."""
    import re  # noqa: PLC0415
    from urllib.parse import unquote  # noqa: PLC0415

    uri = re.match(r"((?:--\w+=)?postgres(?:ql)?://)(.*)", text, re.DOTALL)
    if uri is None:
        keyword = re.search(r"(?:^|[\s=])password\s*=\s*('(?:[^'\\]|\\.)*'|[^\s']+)", text)
        if keyword is None or text.startswith("--password"):
            return text, None
        value = keyword[1][1:-1] if keyword[1].startswith("'") else keyword[1]
        start = keyword.start() + keyword[0].index("password")
        return text[:start] + text[keyword.end() :].lstrip(), re.sub(r"\\(.)", r"\1", value)
    scheme, rest = uri[1], uri[2]
    authority = re.match(r"([^:@/?]*):([^@/?]*)@", rest)
    if authority is not None:
        return f"{scheme}{authority[1]}@{rest[authority.end() :]}", unquote(authority[2])
    query = re.search(r"([?&])password=([^&]*)&?", rest)
    if query is not None:
        return scheme + (rest[: query.start()] + query[1] + rest[query.end() :]).rstrip("?&"), unquote(query[2])
    return text, None


def _leave(*_: object) -> None:
    os.write(2, b"stopped\n")
    # Python's own end would wait for imports under way, and complain of them.
    os._exit(_STOPPED)
