"""What hints say: commands, full disks and places in the code.

Commands are written with placeholders where an error is made, and printed with the names of the moment. A hint says
`headrace resync PIPELINE.YAML TABLE`. Who raises an error rarely knows both names: the pipeline puts in the name of the
table when it fails, and the command that prints the hint puts in the file that it was given, because a path is right
only for who works in the same directory.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path, PurePath

__all__ = [
    "RESYNC",
    "ROLLBACK",
    "errors_of_file",
    "file_named",
    "has_command",
    "is_disk_full",
    "make_room",
    "name_file",
    "name_table",
    "places",
    "quote_for_shell",
    "sql_on_one_line",
]

RESYNC = "headrace resync PIPELINE.YAML TABLE"
"""The command that copies a table again."""
ROLLBACK = "headrace rollback PIPELINE.YAML TABLE"
"""The command that takes a table out of its error, once the cause is gone."""

_FILE = "PIPELINE.YAML"
_TABLE = re.compile(r"(headrace (?:resync|rollback) PIPELINE\.YAML) TABLE\b")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_FULL = re.compile(r"No space left on device|disk is full|Disk quota exceeded", re.IGNORECASE)
_COMMAND = re.compile(r"headrace (?:resync|rollback) ")

_given: list[str] = []
"""What the command that runs in this process was given; all its threads print it."""


def quote_for_shell(text: str) -> str:
    """Quote a word for a shell, on one line: with $'…' (bash, zsh, ksh) if it has characters that do not print."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_quoted_char, text))}'"


def _quoted_char(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in char.encode(errors="surrogateescape"))


def sql_on_one_line(text: str) -> str:
    """Return a text with quoted identifiers of SQL as U&"…" if they have characters that do not print."""
    return text if text.isprintable() else _QUOTED.sub(lambda found: _unicode_identifier(found[0]), text)


def _unicode_identifier(quoted: str) -> str:
    if quoted.isprintable():
        return quoted
    escaped = quoted.replace("\\", "\\\\")
    return "U&" + "".join(char if char.isprintable() else f"\\+{ord(char):06x}" for char in escaped)


def name_table(hint: str, table: object, destination: str = "") -> str:
    """Return the hint with the name of a table, and of a destination where there are several, in its commands."""
    option = f" --destination {quote_for_shell(destination)}" if destination else ""
    return _TABLE.sub(lambda found: f"{found[1]} {quote_for_shell(str(table))}{option}", hint)


def name_file(hint: str) -> str:
    """Return the hint with the file that the command was given, if there is one, in its commands."""
    return hint.replace(_FILE, _given[-1]) if _given else hint


def has_command(hint: str) -> bool:
    """Whether the hint has a command that brings a table back."""
    return _COMMAND.search(hint) is not None


@contextmanager
def file_named(path: str | PathLike[str] | None, source: str | None = None) -> Iterator[None]:
    """While the block runs, print commands with this file, or with a source where no file was given."""
    named = f"--source {quote_for_shell(source)}" if source else None
    if path is not None:
        named = quote_for_shell(str(path))
    if named is not None:
        _given.append(named)
    try:
        yield
    finally:
        if named is not None:
            _given.pop()


def is_disk_full(error: BaseException | str) -> bool:
    """Whether an error, or the text of one, says that a disk or a quota is used up."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return _FULL.search(str(error)) is not None


def make_room(path: str | PathLike[str], then: str = "the pipeline then continues by itself") -> str:
    """Return what to do about the full disk that a path is on: with its mount point, and the bytes that are left."""
    path = re.sub("^file:/+", "/", str(path))
    place = Path(path).absolute()
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        left = shutil.disk_usage(place).free
        while not os.path.ismount(place) and place != place.parent:
            place = place.parent
    except OSError:
        return f"free space on the disk of {path}, or enlarge it: {then}"
    disk = f"{place}, which has {left:,} bytes left"
    return f"free space on the disk of {path}, or enlarge it ({disk}): {then}"


@contextmanager
def errors_of_file(path: str) -> Iterator[None]:
    """Let errors of the operating system that the block raises name this file; pyarrow's name none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = path
        raise


def places(error: BaseException, count: int) -> str:
    """Return the last places in the code that an error passed, the nearest first: no text of it, which may quote a row.

    Files of compiled libraries (pyarrow's error.pxi) say nothing, and nobody has them.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.endswith((".pxi", ".pyx"))]
    return " < ".join(f"{PurePath(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames[-count:]))
