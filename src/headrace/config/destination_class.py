"""Destinations that are not built in: named as `module:Class`, or by the entry point of an installed package.

Such a class is called with its settings: the pydantic model that it names as `Settings`, or nothing if it names none.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel

from ..errors import ConfigError

__all__ = ["ENTRY_POINTS", "destination_class", "installed_destinations", "settings_of"]

ENTRY_POINTS = "headrace.destinations"
"""The group of entry points: a destination's kind to its class."""

_HINT = "write module:Class, as Python imports it, and see that it is on the path (PYTHONPATH) or installed"


def installed_destinations() -> tuple[str, ...]:
    """The kinds that installed packages bring."""
    return tuple(sorted({point.name for point in entry_points(group=ENTRY_POINTS)}))


def destination_class(kind: str) -> type[Any] | None:
    """The class of a kind that is not built in; None if there is none. Raises ConfigError if it fails to load."""
    location = kind if ":" in kind else _entry(kind)
    if location is None:
        return None
    module, _, name = location.partition(":")
    try:
        found = import_module(module)
    except ImportError as error:
        msg = f"the destination {kind} cannot be imported"
        raise ConfigError(msg, detail=f"{type(error).__name__}: {error}", hint=_HINT) from None
    cls = getattr(found, name, None)
    if not isinstance(cls, type):
        msg = f"the module {module} has no class {name}"
        raise ConfigError(msg, hint=_HINT)
    return cls


def settings_of(cls: type[Any]) -> type[BaseModel] | None:
    """The model of its settings; None: it takes none."""
    model = getattr(cls, "Settings", None)
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _entry(kind: str) -> str | None:
    return next((point.value for point in entry_points(group=ENTRY_POINTS) if point.name == kind), None)
