"""What a table at the destination holds of its source."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["TableMode"]


class TableMode(StrEnum):
    """The current rows; every change as a row of its own; the current rows and, flagged, the deleted ones."""

    MIRROR = "mirror"
    CHANGELOG = "changelog"
    SOFT_DELETE = "soft_delete"
