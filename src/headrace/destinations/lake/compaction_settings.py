"""What the choice of files to merge goes by, whatever the table format."""

from __future__ import annotations

from typing import Protocol

__all__ = ["CompactionSettings"]


class CompactionSettings(Protocol):
    """See the section `maintenance` of a destination's settings."""

    @property
    def small_files(self) -> int: ...

    @property
    def target_file_bytes(self) -> int: ...

    @property
    def deleted_ratio(self) -> float: ...
