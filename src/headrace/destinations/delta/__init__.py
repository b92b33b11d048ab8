"""Delta Lake tables: files written by tasks, committed by the driver."""

from __future__ import annotations

from .destination import DeltaDestination

__all__ = ["DeltaDestination"]
