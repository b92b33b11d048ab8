"""Reads the configuration of a pipeline: a YAML file, under environment variables, under arguments.

Everything that is wrong is told at once, with the place where it stands, and without any value.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ..errors import ConfigError
from .destination import DESTINATION_SETTINGS, DestinationConfig
from .destination_class import destination_class, installed_destinations, settings_of
from .environment import read_environment
from .known import nearest
from .layer import Layer, Problem, SettingPath, laid_over, origins_of
from .parquet import ParquetConfig
from .pipeline import PipelineConfig
from .section import Section
from .table_destination import TableDestinationConfig
from .yaml_file import read_yaml

__all__ = ["destination_settings", "load_pipeline_config"]

# pydantic's words where ours are shorter or say what to do.
_WORDS = {
    "missing": "is missing",
    "string_type": "must be text: put it in quotes",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a map of names to values",
    "model_type": "must be a section with settings of its own",
    "model_attributes_type": "must be a section with settings of its own",
    "tuple_type": "must be a list",
}
_NO_TEXT = 'has no value; YAML takes the bare word null for none: if that is the text you mean, write "null"'
_SETTINGS_HINT = "correct the settings named in the message"
_FILE_HINT = "check the path and, where a line is named, indentation and quotes; `headrace init` writes a new one"
# Follows from another problem: a default that is made from a setting that is wrong.
_CONSEQUENCE = "default_factory_not_called"


def load_pipeline_config(
    path: Path | None = None, environ: Mapping[str, str] | None = None, **overrides: Any
) -> PipelineConfig:
    """The configuration in `path`, overridden by `HEADRACE__…` variables, overridden by arguments.

    `environ` stands for this process's environment. Raises one ConfigError that lists every problem.
    """
    file = read_yaml(path) if path is not None else Layer()
    variables = _variables(os.environ if environ is None else environ, file.values, overrides)
    problems = [*file.problems, *variables.problems]
    values = laid_over(laid_over(file.values, variables.values), overrides)
    origins = {**file.origins, **variables.origins, **origins_of(overrides, "argument")}
    config: PipelineConfig | None = None
    try:
        config = PipelineConfig.model_validate(values)
    except ValidationError as error:
        # A file that could not be read misses everything: that it does is no news.
        if path is None or file.values or not file.problems:
            problems += _problems(PipelineConfig, error, origins)
    for at, destination in _destinations(values):
        problems += _destination_problems(destination, origins, at)
    problems += _twice(values)
    if problems or config is None:
        raise _config_error(problems)
    return config


def _variables(environ: Mapping[str, str], file: Mapping[str, Any], overrides: Mapping[str, Any]) -> Layer:
    """The environment, with a destination's settings read by its kind, which stands in any of the three."""
    variables = read_environment(PipelineConfig, environ)
    models = {}
    for at, destination in _destinations(laid_over(laid_over(file, variables.values), overrides)):
        kind = destination.get("kind") if isinstance(destination, Mapping) else None
        # A kind that there is not is told with the other problems, where the settings are checked.
        with contextlib.suppress(ConfigError):
            if isinstance(kind, str) and kind:
                models[at] = _settings_model(kind)
    return read_environment(PipelineConfig, environ, models) if models else variables


def _destinations(values: Mapping[str, Any]) -> Iterator[tuple[SettingPath, Any]]:
    """The sections of destinations, and where each stands."""
    yield ("destination",), values.get("destination")
    named = values.get("destinations")
    if isinstance(named, Mapping):
        for name, section in named.items():
            yield ("destinations", str(name)), section


def _twice(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Destinations that would write over each other: the same, or with one place for what they know of the pipeline."""
    found: list[tuple[SettingPath, Any, tuple[str, ...] | None]] = []
    for at, given in _destinations(values):
        section = given.model_dump() if isinstance(given, DestinationConfig) else given
        kind = section.get("kind") if isinstance(section, Mapping) else None
        model = DESTINATION_SETTINGS.get(str(kind), Section)
        if not issubclass(model, (TableDestinationConfig, ParquetConfig)):
            continue
        place = _place(str(kind), model, section)
        for other, known, taken in found:
            if known == section:
                yield Problem(at, f"is the same as {'.'.join(other)}: two destinations cannot share their tables")
                break
            if place is not None and place == taken:
                what = f"has the same {place[1]} as {'.'.join(other)}: give each destination one of its own"
                yield Problem(at, what)
                break
        found.append((at, section, place))


def _place(
    kind: str, model: type[TableDestinationConfig | ParquetConfig], section: Mapping[str, Any]
) -> tuple[str, ...] | None:
    # Settings that are wrong are told by themselves.
    with contextlib.suppress(ValidationError):
        settings = model.model_validate({name: value for name, value in section.items() if name != "kind"})
        return kind, *settings.place()
    return None


def destination_settings(config: DestinationConfig) -> BaseModel:
    """The settings of a destination. Raises ConfigError as `load_pipeline_config` does."""
    problems = list(_destination_problems(config, {}))
    if problems:
        raise _config_error(problems)
    return _settings_model(config.kind).model_validate(config.options)


def _settings_model(kind: str) -> type[BaseModel]:
    """Raises ConfigError for a kind that there is not."""
    if kind in DESTINATION_SETTINGS:
        return DESTINATION_SETTINGS[kind]
    cls = destination_class(kind)
    if cls is None:
        kinds = ", ".join((*DESTINATION_SETTINGS, *installed_destinations()))
        msg = f"no destination is called {kind!r}; there are {kinds}, and module:Class for one of yours"
        raise ConfigError(msg)
    return settings_of(cls) or Section


def _destination_problems(
    destination: Any, origins: Mapping[SettingPath, str], at: SettingPath = ("destination",)
) -> Iterator[Problem]:
    """What a destination's own settings have wrong, whatever else is: `kind` itself is looked at before, as text."""
    if isinstance(destination, DestinationConfig):
        destination = destination.model_dump()
    kind = destination.get("kind") if isinstance(destination, Mapping) else None
    if not isinstance(kind, str) or not kind:
        return
    try:
        model = _settings_model(kind)
    except ConfigError as error:
        path = (*at, "kind")
        yield Problem(path, str(error), _origin(path, origins))
        return
    try:
        model.model_validate({name: value for name, value in destination.items() if name != "kind"})
    except ValidationError as error:
        yield from _problems(model, error, origins, above=at)


def _problems(
    model: type[BaseModel], error: ValidationError, origins: Mapping[SettingPath, str], above: SettingPath = ()
) -> Iterator[Problem]:
    for found in error.errors(include_url=False, include_context=False):
        if found["type"] == _CONSEQUENCE:
            continue
        # pydantic's own word for the name of an entry of a map.
        path = tuple(str(part) for part in found["loc"] if part != "[key]")
        whole = (*above, *path)
        # The value itself is never told; whether there is one is.
        empty = found["type"] == "string_type" and found["input"] is None
        what = _NO_TEXT if empty else _what(model, found["type"], found["msg"], path, above)
        yield Problem(whole, what, _origin(whole, origins))


def _what(model: type[BaseModel], kind: str, message: str, path: SettingPath, above: SettingPath) -> str:
    if kind == "extra_forbidden":
        return f"unknown setting{nearest(model, path, above)}"
    plain = message.removeprefix("Value error, ")
    return _WORDS.get(kind, plain[:1].lower() + plain[1:])


def _origin(path: SettingPath, origins: Mapping[SettingPath, str]) -> str | None:
    """Where the setting stands, or else the section that lacks it."""
    for depth in range(len(path), 0, -1):
        if path[:depth] in origins:
            return origins[path[:depth]]
    return None


def _config_error(problems: list[Problem]) -> ConfigError:
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = "\n".join(f"- {problem}" for problem in problems)
    # Without a path it is the file as a whole.
    hint = _SETTINGS_HINT if any(problem.path for problem in problems) else _FILE_HINT
    return ConfigError(f"the configuration has {count}:\n{lines}", hint=hint)
