"""config.destination_class: destinations of others, named as module:Class or by an installed package."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from headrace.config import destination_class as module
from headrace.config.destination import DestinationConfig
from headrace.config.destination_class import destination_class, settings_of
from headrace.config.load import destination_settings
from headrace.errors import ConfigError

HERE = __name__


class Settings(BaseModel):
    url: str
    token: SecretStr | None = None


class WithSettings:
    Settings = Settings


class Plain:
    """Takes no settings."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints([EntryPoint("queue", f"{HERE}:WithSettings", module.ENTRY_POINTS)])
    monkeypatch.setattr(module, "entry_points", lambda group: points.select(group=group))


def settings(kind: str, **given: Any) -> BaseModel:
    return destination_settings(DestinationConfig.model_validate({"kind": kind, **given}))


def test_a_class_by_its_place() -> None:
    assert destination_class(f"{HERE}:WithSettings") is WithSettings
    assert settings_of(WithSettings) is Settings
    assert settings_of(Plain) is None
    assert settings(f"{HERE}:WithSettings", url="u") == Settings(url="u")


def test_a_class_by_the_name_that_its_package_gives_it(installed: None) -> None:
    del installed
    assert destination_class("queue") is WithSettings
    assert settings("queue", url="u") == Settings(url="u")
    assert destination_class("no such kind") is None
    with pytest.raises(ConfigError, match=r"no destination is called .queues.; there are .*queue, and module:Class"):
        settings("queues")


def test_its_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"destination\.url: is missing"):
        settings(f"{HERE}:WithSettings", token="secret-value")
    with pytest.raises(ConfigError, match=r"destination\.url: unknown setting"):
        settings(f"{HERE}:Plain", url="u")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("no.such.module:Class", "cannot be imported"),
        (f"{HERE}:NoSuchClass", "has no class NoSuchClass"),
        (f"{HERE}:settings", "has no class settings"),
        (":Class", "must be given as module:Class"),
        (f"{HERE}:", "must be given as module:Class"),
        (".module:Class", "must be given as module:Class"),
    ],
)
def test_a_class_that_is_not_there(kind: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        destination_class(kind)
    assert "module:Class" in caught.value.hint
    with pytest.raises(ConfigError, match=said):
        settings(kind)
