"""config.destination: settings are checked by the kind of destination, and problems are told with their place."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from headrace.config.destination import DESTINATION_SETTINGS, DestinationConfig
from headrace.config.iceberg import IcebergConfig
from headrace.config.json_as import JsonAs
from headrace.config.load import destination_settings, load_pipeline_config
from headrace.config.table_mode import TableMode
from headrace.errors import ConfigError

SECRET = "do-not-show-me"
ICEBERG = "destination: {kind: iceberg, warehouse: w}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.yaml"


def load(file: Path, text: str, environ: dict[str, str] | None = None, **overrides: Any) -> IcebergConfig:
    head = "id: 1\npublication_name: p\npg_connection: {host: db, name: shop, username: u}\n"
    file.write_text(head + textwrap.dedent(text), encoding="utf-8")
    variables = {f"HEADRACE__DESTINATION{name}": value for name, value in (environ or {}).items()}
    config = load_pipeline_config(file, variables, **overrides)
    assert config.destination is not None
    settings = destination_settings(config.destination)
    assert isinstance(settings, IcebergConfig)
    return settings


def problems(file: Path, destination: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, destination, environ)
    assert SECRET not in str(caught.value)
    _, *lines = caught.value.message.splitlines()
    return [line.removeprefix("- ").replace(str(file), "FILE") for line in lines]


def test_variables_are_read_by_the_settings_of_the_kind(file: Path) -> None:
    it = load(
        file,
        ICEBERG,
        {
            "__CATALOG__SECRETS": f'{{"token": "{SECRET}"}}',
            "__CATALOG__SECRETS__CREDENTIAL": SECRET,
            "__CATALOG__PROPERTIES": '{"s3.endpoint": "http://127.0.0.1:1"}',
            "__MAINTENANCE__INTERVAL_S": "5",
            "__MAINTENANCE": '{"enabled": false}',
            "__JSON_AS": "variant",
            "__COMMIT_RETRIES": " 3 ",
            "__TABLES": '{"public.a": {"mode": "changelog"}}',
            "__TABLES__PUBLIC.B__PARTITION_BY": "region, days(created_at)",
            "__TABLES__PUBLIC.C": '{"name": "lake.c"}',
        },
    )
    assert it.catalog.secrets == {"token": SecretStr(SECRET), "credential": SecretStr(SECRET)}
    assert it.catalog.properties == {"s3.endpoint": "http://127.0.0.1:1"}
    assert (it.maintenance.interval_s, it.maintenance.enabled) == (5, False)
    assert (it.json_as, it.commit_retries) == (JsonAs.VARIANT, 3)
    assert it.tables["public.a"].mode is TableMode.CHANGELOG
    assert it.tables["public.b"].partition_by == ("region", "days(created_at)")
    assert it.tables["public.c"].name == "lake.c"


@pytest.mark.parametrize(
    ("destination", "kind"),
    [
        ("destination: {kind: 'null'}\n", {"__KIND": "iceberg"}),
        ("", {"": '{"kind": "iceberg"}'}),
        ("", {"__KIND": "iceberg"}),
    ],
)
def test_the_kind_may_come_from_the_environment(file: Path, destination: str, kind: dict[str, str]) -> None:
    it = load(file, destination, {**kind, "__WAREHOUSE": "12", "__MAINTENANCE__INTERVAL_S": "5"})
    assert (it.warehouse, it.maintenance.interval_s) == ("12", 5)


def test_the_kind_may_come_from_an_argument(file: Path) -> None:
    it = load(file, "", {"__PROPERTIES": '{"a": "b"}'}, destination={"kind": "iceberg", "warehouse": "w"})
    assert it.properties == {"a": "b"}


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("__WAREHUOSE", "w", "destination.warehuose ({}): unknown setting; did you mean destination.warehouse?"),
        (
            "__CATALOG__SECRET",
            SECRET,
            "destination.catalog.secret ({}): unknown setting; did you mean destination.catalog.secrets?",
        ),
        (
            "__INTERVAL_S",
            "5",
            "destination.interval_s ({}): unknown setting; did you mean destination.maintenance.interval_s?",
        ),
        ("__CATALOG__SECRETS", SECRET, "destination.catalog.secrets ({}): must be a JSON object"),
        ("__MAINTENANCE__ENABLED", SECRET, "destination.maintenance.enabled ({}): must be true or false"),
        (
            "__TABLES__PUBLIC.A__MDOE",
            "mirror",
            "destination.tables.public.a.mdoe ({}): unknown setting; did you mean destination.tables.public.a.mode?",
        ),
        (
            "__WAREHOUSE__X",
            "w",
            "destination.warehouse.x ({}): unknown setting; destination.warehouse has no settings inside",
        ),
        (
            "__KIND",
            "icberg",
            f"destination.kind ({{}}): no destination is called 'icberg'; there are {', '.join(DESTINATION_SETTINGS)}, "
            "and module:Class for one of yours",
        ),
    ],
)
def test_a_wrong_variable_is_named(file: Path, variable: str, value: str, told: str) -> None:
    name = f"HEADRACE__DESTINATION{variable}"
    assert problems(file, ICEBERG, {variable: value}) == [told.format(name)]


def test_every_problem_in_the_file_is_told_with_its_line(file: Path) -> None:
    text = f"""\
        destination:
          kind: iceberg
          catalog:
            type: rest
          warehuose: {SECRET}
          maintenance:
            small_files: 1
          tables:
            orders: {{mode: mirror}}
            public.items: {{mode: {SECRET}}}
    """
    assert sorted(problems(file, text)) == sorted(
        [
            "destination.warehouse (FILE:4): is missing",
            "destination.catalog (FILE:6): uri is missing: say where the rest catalog is",
            "destination.tables.orders (FILE:12): must be named as schema.table",
            "destination.tables.public.items.mode (FILE:13): input should be 'mirror', 'changelog' or 'soft_delete'",
            "destination.maintenance.small_files (FILE:10): input should be greater than or equal to 2",
            "destination.warehuose (FILE:8): unknown setting; did you mean destination.warehouse?",
        ]
    )


def test_problems_elsewhere_do_not_hide_those_of_the_destination(file: Path) -> None:
    text = """\
        batch: {max_byte: 1}
        destination:
          kind: iceberg
          warehuose: w
    """
    assert problems(file, text) == [
        "batch.max_byte (FILE:4): unknown setting; did you mean batch.max_bytes?",
        "destination.warehouse (FILE:5): is missing",
        "destination.warehuose (FILE:7): unknown setting; did you mean destination.warehouse?",
    ]


@pytest.mark.parametrize("kind", ["null", "~", ""])
def test_a_kind_that_yaml_takes_for_none(file: Path, kind: str) -> None:
    said = 'has no value; YAML takes the bare word null for none: if that is the text you mean, write "null"'
    assert problems(file, f"destination:\n  kind: {kind}\n") == [f"destination.kind (FILE:5): {said}"]


def test_a_destination_as_an_argument_is_checked_too(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"destination\.warehouse"):
        load(file, "", destination=DestinationConfig(kind="iceberg"))


def test_a_kind_that_nobody_knows(file: Path) -> None:
    kinds = ", ".join(DESTINATION_SETTINGS)
    said = f"no destination is called 'parket'; there are {kinds}, and module:Class for one of yours"
    assert problems(file, "destination:\n  kind: parket\n  path: x\n") == [f"destination.kind (FILE:5): {said}"]
    with pytest.raises(ConfigError, match="no destination is called 'parket'"):
        destination_settings(DestinationConfig(kind="parket"))


def test_a_destination_shows_no_setting() -> None:
    it = DestinationConfig.model_validate({"kind": "iceberg", "token": SECRET})
    assert SECRET not in repr(it) + str(it)
    assert "token" in repr(it)
