"""Destinations that are not built in: named as `module:Class`, or by the entry point of an installed package.

Such a class is called with its settings: the pydantic model that it names as `Settings`, or nothing if it names none.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel

from .references import named_class

__all__ = ["ENTRY_POINTS", "destination_class", "installed_destinations", "settings_of"]

ENTRY_POINTS = "headrace.destinations"
"""The group of entry points: a destination's kind to its class."""


def installed_destinations() -> tuple[str, ...]:
    """The kinds that installed packages bring."""
    return tuple(sorted({point.name for point in entry_points(group=ENTRY_POINTS)}))


def destination_class(kind: str) -> type[Any] | None:
    """The class of a kind that is not built in; None if there is none. Raises ConfigError if it fails to load."""
    location = kind if ":" in kind else _entry(kind)
    if location is None:
        return None
    return named_class(location, f"the destination {kind}")


def settings_of(cls: type[Any]) -> type[BaseModel] | None:
    """The model of its settings; None: it takes none."""
    model = getattr(cls, "Settings", None)
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _entry(kind: str) -> str | None:
    return next((point.value for point in entry_points(group=ENTRY_POINTS) if point.name == kind), None)
