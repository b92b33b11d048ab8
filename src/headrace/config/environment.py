"""Settings from environment variables: `HEADRACE__BATCH__MAX_BYTES` is `batch.max_bytes`.

Names may be in either case. Text, numbers and switches are given as they are, lists as JSON or separated by commas,
maps and whole sections as JSON. `null` is none for a setting that may be none and is not text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, SecretStr

from .known import alternatives, nearest, section_of, takes_any_name
from .layer import Layer, Problem, SettingPath, origins_of

__all__ = ["PREFIX", "read_environment"]

PREFIX = "HEADRACE__"
_TEXT = (str, SecretStr, Path)
_LISTS = (list, tuple, set, frozenset)


def read_environment(root: type[BaseModel], environ: Mapping[str, str]) -> Layer:
    """The settings of all variables that begin with `HEADRACE__`."""
    layer = Layer()
    for path, variable in _variables(environ, layer):
        try:
            value = _parsed(_annotation(root, path), environ[variable])
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


def _annotation(root: type[BaseModel], path: SettingPath) -> Any:
    """The type of the setting a path leads to; text inside maps and inside what a destination checks itself."""
    model: type[BaseModel] = root
    for depth, name in enumerate(path):
        field = model.model_fields.get(name)
        if field is None:
            if takes_any_name(model):
                return str
            unknown = path[: depth + 1]
            msg = f"unknown setting{nearest(root, unknown)}"
            raise _Unreadable(msg)
        if depth == len(path) - 1:
            return field.annotation
        section = section_of(field.annotation)
        if section is None:
            return _inside(field.annotation, path[: depth + 1])
        model = section
    return None


def _inside(annotation: Any, path: SettingPath) -> Any:
    if any(get_origin(member) is dict for member in alternatives(annotation)):
        return str
    msg = f"unknown setting; {'.'.join(path)} has no settings inside"
    raise _Unreadable(msg)


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
    if dict in origins or section_of(annotation) is not None:
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
