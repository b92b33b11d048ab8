"""Files that were written and are in no table: removed as soon as that is known."""

from __future__ import annotations

from collections.abc import Iterable

from .files import TableLayout, Written
from .places import file_io, removed

__all__ = ["discard"]


def discard(layout: TableLayout, attempts: Iterable[Written]) -> None:
    """Remove the files of attempts whose commit failed. What cannot be removed now, the search for orphans finds."""
    paths: list[str] = []
    for written in attempts:
        paths += [file.path for file in written.data]
        paths += [vector.path for vector in written.vectors]
    removed(file_io(layout), paths)
