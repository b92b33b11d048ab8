"""config.form: text of the wrong form is refused in words that say the right one, wherever a setting has a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.config.form import Form
from headrace.config.load import load_pipeline_config
from headrace.config.section import Section
from headrace.config.spark import SparkConfig
from headrace.errors import ConfigError

CONNECTION = {"host": "db", "name": "shop", "username": "u"}
LAKE = {"kind": "iceberg", "warehouse": "w"}


def told(**settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_pipeline_config(None, {}, id=1, publication_name="p", pg_connection=CONNECTION, **settings)
    head, line = caught.value.message.splitlines()
    assert head == "the configuration has a problem:"
    return line.removeprefix("- ")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"transforms": {"tables": {"public.x": {"transform": "nope"}}}},
            "transforms.tables.public.x.transform (argument): "
            "must name a function as module:function, such as my_transforms:clean",
        ),
        ({"transforms": {"tables": {"x": {}}}}, "transforms.tables.x (argument): must be named as schema.table"),
        ({"slot_name": "Slot"}, "slot_name (argument): must be 1 to 63 of a-z, 0-9 and _"),
        ({"slot_name": "slot\n"}, "slot_name (argument): must be 1 to 63 of a-z, 0-9 and _"),
        (
            {"spark": {"driver_memory": "2 GB"}},
            "spark.driver_memory (argument): must be a whole number with unit k, m, g or t, such as 2g",
        ),
        (
            {"destination": {**LAKE, "tables": {"public.x": {"name": "x"}}}},
            "destination.tables.public.x.name (argument): must be given as namespace.table",
        ),
        (
            {"destination": {**LAKE, "catalog": {"name": "my-catalog"}}},
            "destination.catalog.name (argument): must be of A-Z, a-z, 0-9 and _, and not begin with a digit",
        ),
        (
            {"destination": {"kind": "duckdb", "database": "x.duckdb", "engine": {"memory_limit": "2g"}}},
            "destination.engine.memory_limit (argument): must be a number with a unit, written as 512MB or 4GiB",
        ),
    ],
)
def test_the_right_form_is_told_in_words(settings: dict[str, Any], problem: str) -> None:
    assert told(**settings) == problem


def test_none_has_every_form() -> None:
    it = load_pipeline_config(
        None,
        {"HEADRACE__TRANSFORMS__TABLES__PUBLIC.Y__TRANSFORM": "m:f"},
        id=1,
        publication_name="p",
        pg_connection=CONNECTION,
        transforms={"tables": {"public.x": {"transform": None}}},
    ).transforms
    assert (it.tables["public.x"].transform, it.tables["public.y"].transform) == (None, "m:f")


def test_no_setting_has_a_pattern_without_words() -> None:
    def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
        yield model
        for below in model.__subclasses__():
            yield from sections(below)

    found = [
        (model, name, item)
        for model in (*sections(Section), SparkConfig)
        for name, field in model.model_fields.items()
        for item in field.metadata
        if getattr(item, "pattern", None)
    ]
    assert len(found) > 5
    assert [(model, name) for model, name, item in found if not isinstance(item, Form)] == []
