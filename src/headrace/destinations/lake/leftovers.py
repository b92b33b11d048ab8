"""Files that were written and are in no table: removed as soon as that is known."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from .files import TableLayout, Written
from .java_errors import may_be_committed
from .places import file_io, removed

__all__ = ["PendingFiles", "discard"]


class PendingFiles:
    """Files written for a commit: a `with` block around it removes them if it fails and they cannot be in the table.

    The commit must be the last statement of the block: an error after it would remove committed files.
    """

    def __init__(self, layout: TableLayout, written: Iterable[Written] = ()) -> None:
        self._layout, self._written = layout, list(written)

    @property
    def written(self) -> list[Written]:
        return list(self._written)

    def add(self, *written: Written) -> None:
        self._written += written

    def __enter__(self) -> PendingFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not may_be_committed(error):
            discard(self._layout, self._written)


def discard(layout: TableLayout, attempts: Iterable[Written]) -> None:
    """Remove the files of attempts whose commit failed. What cannot be removed now, the search for orphans finds."""
    paths: list[str] = []
    for written in attempts:
        paths += [file.path for file in written.data]
        paths += [vector.path for vector in written.vectors]
    removed(file_io(layout), paths)
