"""Where files are: the way to them, names for new ones, and taking back what was written when a task fails."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlparse

from pyiceberg.io import FileIO, load_file_io

from .files import TableLayout

__all__ = ["file_io", "file_io_for", "new_path", "removed"]

_WAYS_KEPT = 16


def file_io(layout: TableLayout) -> FileIO:
    """The way to a table's files. Kept, because an object store's client is dear to make."""
    return file_io_for(layout.io_properties, layout.data_location)


def file_io_for(properties: Mapping[str, str], location: str) -> FileIO:
    """As `file_io`, for a table of which no layout is known."""
    scheme = urlparse(location).scheme or "file"
    return _file_io(frozenset(properties.items()), f"{scheme}:///")


@lru_cache(maxsize=_WAYS_KEPT)
def _file_io(properties: frozenset[tuple[str, str]], location: str) -> FileIO:
    return load_file_io(dict(properties), location)


def new_path(layout: TableLayout, suffix: str, partition_path: str = "") -> str:
    """A name that no other call ever gives."""
    directory = f"{layout.data_location}/{partition_path}" if partition_path else layout.data_location
    return f"{directory}/{layout.file_prefix}{uuid.uuid4()}{suffix}"


def removed(io: FileIO, paths: Iterable[str]) -> None:
    """Remove files that no snapshot names. What cannot be removed stays for the removal of orphan files."""
    for path in paths:
        # Whatever a file system raises: the error that made the files useless is the one to be seen.
        with contextlib.suppress(Exception):
            io.delete(path)
