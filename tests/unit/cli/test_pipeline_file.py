"""cli.pipeline_file: the file that init writes loads, says what was chosen, and every default it shows is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli.pipeline_file import PipelineFile, scalar
from headrace.config.destination import DESTINATION_SETTINGS
from headrace.config.load import destination_settings, load_pipeline_config
from headrace.config.pipeline import PipelineConfig
from headrace.postgres.connection import parse_conninfo

SECRET = "do-not-write-me"
SOURCE = f"postgresql://rep:{SECRET}@db.example.com:6432/shop"


def made(tmp_path: Path, source: str = SOURCE, destination: str = "iceberg", **changes: Any) -> tuple[str, Path]:
    chosen = {"id": 7, "publication": "shop_pub", "warehouse": "./warehouse", **changes}
    password_file = chosen.pop("password_file", None)
    connection = parse_conninfo(source, password_file=password_file)
    path = tmp_path / "pipeline.yaml"
    path.write_text(PipelineFile(connection=connection, destination=destination, **chosen).text(path), encoding="utf-8")
    return path.read_text(encoding="utf-8"), path


def loaded(path: Path) -> PipelineConfig:
    return load_pipeline_config(path, environ={})


@pytest.mark.parametrize("destination", list(DESTINATION_SETTINGS))
def test_it_loads_and_has_what_was_chosen(tmp_path: Path, destination: str) -> None:
    text, path = made(tmp_path, destination=destination)
    it = loaded(path)
    assert (it.id, it.publication_name) == (7, "shop_pub")
    where = it.pg_connection
    assert (where.host, where.port, where.name, where.username) == ("db.example.com", 6432, "shop", "rep")
    assert it.destination is not None
    assert it.destination.kind == destination
    destination_settings(it.destination)
    assert SECRET not in text
    assert where.password is None


@pytest.mark.parametrize("destination", list(DESTINATION_SETTINGS))
def test_every_default_it_shows_is_the_default(tmp_path: Path, destination: str) -> None:
    text, path = made(tmp_path, destination=destination)
    before = loaded(path)
    marked = re.findall(r"^ *#: \w+:.*$", text, re.MULTILINE)
    assert len(marked) > 10
    # When every mark is taken away, as the file says
    path.write_text(re.sub(r"^( *)#: ", r"\1", text, flags=re.MULTILINE), encoding="utf-8")
    after = loaded(path)
    # Then the settings are given, and change nothing
    assert "max_fill_ms" in after.batch.model_fields_set
    assert "port" in after.metrics.model_fields_set
    assert after.model_copy(update={"destination": None}) == before.model_copy(update={"destination": None})
    assert before.destination is not None
    assert after.destination is not None
    assert destination_settings(after.destination) == destination_settings(before.destination)


def test_a_password_file_is_named(tmp_path: Path) -> None:
    text, path = made(tmp_path, "postgresql://rep@db/shop", password_file=Path("/run/secrets/a b"))
    assert loaded(path).pg_connection.password_file == Path("/run/secrets/a b")
    assert "HEADRACE__PG_CONNECTION__PASSWORD" not in text


def test_tls_and_other_parameters_are_kept(tmp_path: Path) -> None:
    source = f"{SOURCE}?sslmode=verify-full&sslrootcert=system&channel_binding=require&connect_timeout=3"
    _, path = made(tmp_path, source)
    expected = parse_conninfo(source).model_copy(update={"password": None})
    assert loaded(path).pg_connection == expected


def test_a_remote_warehouse_gets_a_catalog_here(tmp_path: Path) -> None:
    _, path = made(tmp_path, warehouse="s3://bucket/lake")
    it = loaded(path).destination
    assert it is not None
    assert it.options["catalog"] == {"type": "sqlite", "uri": "catalog.db"}


@pytest.mark.parametrize(
    "text", ["no", "null", "1", "a: b", "# x", "Größe", "it's", '"q"', " x", "a\\b", "*x", "2026-01-01"]
)
def test_what_yaml_would_read_otherwise_is_quoted(text: str) -> None:
    assert yaml.safe_load(f"a: {scalar(text)}") == {"a": text}
    assert "\n" not in scalar(text)
