"""Destinations whose packages are not installed: the pipeline says what to install, and all others are to be had."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# In a process of its own, where nothing was imported before.
SCRIPT = """
import json, sys
for package in ("pyiceberg", "pyiceberg_core", "pyroaring", "duckdb", "deltalake"):
    sys.modules[package] = None
from headrace.config.pipeline import PipelineConfig
from headrace.errors import ConfigError
from headrace.pipeline.build import build_destination

told = {}
for section in json.loads(sys.argv[1]):
    source = {"host": "h", "name": "n", "username": "u"}
    config = PipelineConfig.model_validate(
        {"id": 1, "publication_name": "p", "pg_connection": source, "destination": section}
    )
    try:
        told[section["kind"]] = build_destination(config).name
    except ConfigError as error:
        told[section["kind"]] = [str(error), error.hint]
print(json.dumps(told))
"""
NEEDY = {
    "iceberg": {"warehouse": "w"},
    "delta": {"warehouse": "w"},
    "duckdb": {"database": "d"},
    "ducklake": {"data_path": "d", "catalog": {"type": "sqlite", "uri": "c"}},
}
OTHERS = {"parquet": {"location": "l"}, "stdout": {}, "memory": {}, "null": {}}


@pytest.fixture(scope="module")
def told() -> dict[str, list[str] | str]:
    sections = [{"kind": kind, **settings} for kind, settings in (NEEDY | OTHERS).items()]
    command = [sys.executable, "-c", SCRIPT, json.dumps(sections)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found: dict[str, list[str] | str] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("kind", NEEDY)
def test_a_destination_without_its_extra(kind: str, told: dict[str, list[str] | str]) -> None:
    message, hint = told[kind]
    assert message.startswith(f"the destination {kind} needs the Python package ")
    assert hint == f"install it: pip install 'headrace[{kind}]'"


@pytest.mark.parametrize("kind", OTHERS)
def test_a_destination_that_has_none(kind: str, told: dict[str, list[str] | str]) -> None:
    assert told[kind] == kind
