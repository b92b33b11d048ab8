"""Jars: what a destination may need of Spark beyond the contract."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["NeedsJars"]


@runtime_checkable
class NeedsJars(Protocol):
    """A destination for which Spark must be started with jars."""

    packages: tuple[str, ...]
    """Maven coordinates."""
