"""Which settings there are, read from the models: to follow a path into them, to name the nearest to a wrong one."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from .layer import SettingPath

__all__ = ["MAPS", "alternatives", "nearest", "section_of", "takes_any_name", "values_of"]

MAPS = frozenset({dict, Mapping})
"""What a setting that is a map of names to values is declared as."""


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type there is."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The model of a setting that is a section, also of one that may be none."""
    for member in alternatives(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            return member
    return None


def values_of(annotation: Any) -> Any:
    """The type of the values of a setting that is a map; None for any other."""
    return next((get_args(member)[1] for member in alternatives(annotation) if get_origin(member) in MAPS), None)


def takes_any_name(model: type[BaseModel]) -> bool:
    """Whether names beside the model's own are for someone else to check."""
    return model.model_config.get("extra") == "allow"


def nearest(root: type[BaseModel], path: SettingPath, above: SettingPath = ()) -> str:
    """What whoever wrote this unknown setting may have meant, as the end of a sentence. `root` stands at `above`."""
    model = _section_at(root, path[:-1])
    if model is None:
        return ""
    here = list(model.model_fields)
    name = path[-1].lower()
    for close in get_close_matches(name, here, n=1):
        return f"; did you mean {'.'.join((*above, *path[:-1], close))}?"
    for known in (*_settings(model, path[:-1]), *_settings(root)):
        if known[-1] == name:
            return f"; did you mean {'.'.join((*above, *known))}?"
    return f"; known here: {', '.join(sorted(here))}"


def _section_at(root: type[BaseModel], path: SettingPath) -> type[BaseModel] | None:
    at: Any = root
    for name in path:
        section = section_of(at)
        if section is None:
            # Inside a map any name leads on: a table's, a column's.
            at = values_of(at)
        else:
            field = section.model_fields.get(name)
            at = None if field is None else field.annotation
    return section_of(at)


def _settings(model: type[BaseModel], above: SettingPath = ()) -> Iterator[SettingPath]:
    for name, field in model.model_fields.items():
        yield (*above, name)
        section = section_of(field.annotation)
        if section is not None:
            yield from _settings(section, (*above, name))
