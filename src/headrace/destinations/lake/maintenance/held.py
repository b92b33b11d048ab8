"""What maintenance must know of a table that the destination writes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

__all__ = ["HeldTable", "Stopped"]


class HeldTable(Protocol):
    """A table of the destination. The stream writes it only while it holds the lock."""

    @property
    def name(self) -> tuple[str, ...]: ...

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    @property
    def table(self) -> Any | None:
        """None: not there, or not looked for yet. Used under the lock, but for what never changes of it."""
        ...

    @property
    def copying(self) -> bool:
        """Whether files are being written without the lock, that no snapshot names until all are there."""
        ...


class Stopped(Exception):
    """Maintenance was told to stop; what was begun is taken back."""
