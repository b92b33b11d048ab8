"""The demo's directory: ours by a marker file, locked while a demo runs, emptied by the next. No other is touched."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ConfigError
from .server import remove_server

__all__ = ["MARKER", "SERVER", "claimed"]

MARKER = ".headrace-demo"
SERVER = "postgres"

_MARKER_TEXT = "The next `headrace demo` empties this directory.\n"


@contextmanager
def claimed(path: Path) -> Iterator[Path]:
    """The directory, empty, for this process alone while the block runs.

    Raises:
        ConfigError: there is something else at this path, it cannot be made, or another demo runs in it.
    """
    directory = path.resolve()
    try:
        _refuse_foreign(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make the demo's directory {directory}: {error.strerror}"
        raise ConfigError(msg, hint="name another with --dir, in a place that this user may write to") from None
    # "a": opened before it is locked, so it must not be emptied by opening it.
    with (directory / MARKER).open("a", encoding="utf-8") as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"another demo runs in {directory}"
            raise ConfigError(msg, hint="stop it with Ctrl-C first, or name another directory with --dir") from None
        if not marker.tell():
            marker.write(_MARKER_TEXT)
            marker.flush()
        _empty(directory)
        yield directory


def _refuse_foreign(directory: Path) -> None:
    hint = "name another directory with --dir, one that is empty or not there yet"
    if directory.exists() and not directory.is_dir():
        msg = f"{directory} is not a directory"
        raise ConfigError(msg, hint=hint)
    if directory.exists() and not (directory / MARKER).is_file() and any(directory.iterdir()):
        msg = f"{directory} is not empty and not of an earlier demo"
        raise ConfigError(msg, hint=hint)


def _empty(directory: Path) -> None:
    # A demo that was killed leaves its server running.
    remove_server(directory / SERVER)
    for entry in directory.iterdir():
        if entry.name == MARKER:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
