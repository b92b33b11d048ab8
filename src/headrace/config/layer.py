"""One source of settings (a file, the environment, arguments) and where in it each setting stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Layer", "Problem", "SettingPath", "laid_over", "origins_of"]

SettingPath = tuple[str, ...]
"""The names that lead to a setting, outermost first."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a setting. `what` never quotes the value: it may be a secret."""

    path: SettingPath
    what: str
    origin: str | None = None
    """The file with its line, or the variable."""

    def __str__(self) -> str:
        name = ".".join(self.path)
        place = f"{name} ({self.origin})" if name and self.origin else name or self.origin
        return f"{place}: {self.what}" if place else self.what


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings as they were read, not yet checked."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[SettingPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both together: what `above` has wins, section by section.

    A secret and the file that holds it (`password`, `password_file`) are one choice: whoever names one of them above
    replaces the other below.
    """
    merged = {name: value for name, value in below.items() if _twin(name) not in above}
    for name, value in above.items():
        under = merged.get(name)
        merged[name] = laid_over(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged


def origins_of(value: Any, origin: str, path: SettingPath = ()) -> dict[SettingPath, str]:
    """The same origin for a setting, or for all that a section holds."""
    if not isinstance(value, Mapping) or not value:
        return {path: origin}
    found: dict[SettingPath, str] = {}
    for name, inner in value.items():
        found.update(origins_of(inner, origin, (*path, str(name))))
    return found


def _twin(name: str) -> str:
    return name.removesuffix("_file") if name.endswith("_file") else f"{name}_file"
