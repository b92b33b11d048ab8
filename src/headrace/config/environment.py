"""Settings from environment variables: `HEADRACE__BATCH__MAX_BYTES` is `batch.max_bytes`.

Names may be in either case. Text, numbers and switches are given as they are, lists as JSON or separated by commas,
maps and whole sections as JSON. `null` is none for a setting that may be none and is not text.
Settings of a destination are read by the model of its kind, which the caller knows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, SecretStr

from .known import MAPS, alternatives, nearest, section_of, takes_any_name, values_of
from .layer import Layer, Problem, SettingPath, origins_of

__all__ = ["PREFIX", "read_environment"]

PREFIX = "HEADRACE__"
_TEXT = (str, SecretStr, Path)
_LISTS = (list, tuple, set, frozenset)


def read_environment(
    root: type[BaseModel], environ: Mapping[str, str], beside: Mapping[SettingPath, type[BaseModel]] | None = None
) -> Layer:
    """The settings of all variables that begin with `HEADRACE__`.

    `beside` has the models of settings that a section takes beside its own, by the section's path.
    """
    layer, known = Layer(), _Known(root, (), beside or {})
    for path, variable in _variables(environ, layer):
        try:
            value = _parsed(known.annotation(path), environ[variable])
        except _Unreadable as reason:
            layer.problems.append(Problem(path, str(reason), variable))
            continue
        _place(layer.values, path, value)
        layer.origins.update(origins_of(value, variable, path))
    return layer


def _place(values: dict[str, Any], path: SettingPath, value: Any) -> None:
    for name in path[:-1]:
        if not isinstance(values.get(name), dict):
            values[name] = {}
        values = values[name]
    values[path[-1]] = value


class _Unreadable(Exception):
    """Why a variable gives no setting."""


def _variables(environ: Mapping[str, str], layer: Layer) -> list[tuple[SettingPath, str]]:
    """Paths and variables, whole sections before their parts, so that the part wins."""
    ours = [name for name in environ if name.upper().startswith(PREFIX)]
    found = [(tuple(name[len(PREFIX) :].lower().split("__")), name) for name in sorted(ours)]
    count = Counter(path for path, _ in found)
    for path, name in found:
        if count[path] > 1:
            layer.problems.append(Problem(path, "is given by several variables that differ in case only", name))
    return sorted(found, key=lambda item: len(item[0]))


@dataclass(frozen=True, slots=True)
class _Known:
    """A model, where it stands, and what its sections take beside their own settings."""

    model: type[BaseModel]
    at: SettingPath
    beside: Mapping[SettingPath, type[BaseModel]]

    def annotation(self, path: SettingPath) -> Any:
        """The type of the setting a path leads to; text inside maps and inside what a destination checks itself."""
        model = self.model
        for depth in range(len(self.at), len(path)):
            field = model.model_fields.get(path[depth])
            if field is None:
                return self._beside(model, path, depth)
            if depth == len(path) - 1:
                return field.annotation
            section = section_of(field.annotation)
            if section is None:
                return _inside(field.annotation, path, depth + 1, self.beside)
            model = section
        return None

    def _beside(self, model: type[BaseModel], path: SettingPath, depth: int) -> Any:
        if not takes_any_name(model):
            unknown = path[len(self.at) : depth + 1]
            msg = f"unknown setting{nearest(self.model, unknown, self.at)}"
            raise _Unreadable(msg)
        other = self.beside.get(path[:depth])
        return str if other is None else _Known(other, path[:depth], {}).annotation(path)


def _inside(annotation: Any, path: SettingPath, depth: int, beside: Mapping[SettingPath, type[BaseModel]]) -> Any:
    """The type of what a path leads to inside a map; the map's own name ends at `depth`."""
    value = values_of(annotation)
    if value is None:
        msg = f"unknown setting; {'.'.join(path[:depth])} has no settings inside"
        raise _Unreadable(msg)
    section = section_of(value)
    if section is None:
        return str
    at = path[: depth + 1]
    return value if at == path else _Known(section, at, beside).annotation(path)


def _parsed(annotation: Any, text: str) -> Any:
    members = alternatives(annotation)
    if any(member in _TEXT for member in members):
        return text
    if type(None) in members and text.strip().lower() == "null":
        return None
    origins = [get_origin(member) for member in members]
    if any(origin in _LISTS for origin in origins):
        if text.lstrip().startswith("["):
            return _from_json(text, list, "JSON list")
        return [part.strip() for part in text.split(",") if part.strip()]
    if not MAPS.isdisjoint(origins) or section_of(annotation) is not None:
        return _from_json(text, dict, "JSON object")
    return text.strip()


def _from_json(text: str, kind: type, name: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        msg = f"must be a {name}"
        raise _Unreadable(msg)
    return value
