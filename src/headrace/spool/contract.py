"""The promise of a place where segments lie: names appear whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa  # listing a place needs no Arrow

__all__ = ["Entry", "Place"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A published file: its name, size in bytes and when it was published (Unix seconds, the place's clock)."""

    name: str
    size: int
    modified: float


class Place(Protocol):
    """A flat directory of immutable files. Raises SpoolIoError for anything the medium does."""

    @property
    def location(self) -> str:
        """The directory or URI, for messages."""

    @property
    def staging(self) -> Path:
        """A local directory for files being written; what lies there after a crash is nobody's."""

    def secure(self) -> None:
        """Let nobody but the owner write to local directories, nor read them, except for the spool's group.

        Raises ConfigError where others could have written.
        """

    def publish(self, staged: Path, name: str) -> None:
        """Move a staged file here under its name, at once and completely."""

    def sync(self) -> None:
        """Make everything published so far survive a power cut."""

    def entries(self) -> list[Entry]:
        """Everything published, in no order. Files published before the call are all there.

        Raises SpoolGap where the place itself is gone.
        """

    def read(self, name: str) -> pa.Buffer:
        """The whole file (mapped, where the medium allows). Raises SpoolCorrupt when it is not there."""

    def delete(self, name: str) -> None:
        """Remove a file; one that is gone already is no error."""
