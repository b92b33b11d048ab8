"""Several destinations in a configuration: by name, each read and checked like the only one."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from headrace.config.load import load_pipeline_config
from headrace.config.pipeline import PipelineConfig
from headrace.errors import ConfigError

HEAD = """
    id: 1
    publication_name: p
    pg_connection: {host: db, name: shop, username: u}
"""
TWO = (
    HEAD
    + """
    destinations:
      lake:
        kind: iceberg
        warehouse: /tmp/lake
      trial:
        kind: memory
"""
)


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None, **overrides: Any) -> PipelineConfig:
    file = tmp_path / "headrace.yaml"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return load_pipeline_config(file, environ or {}, **overrides)


def problems(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, environ)
    lines = caught.value.message.splitlines()[1:]
    return [line.removeprefix("- ").replace(str(tmp_path / "headrace.yaml"), "FILE") for line in lines]


def test_by_name(tmp_path: Path) -> None:
    it = load(tmp_path, TWO)
    assert it.destination is None
    assert {name: (one.kind, one.options) for name, one in it.lanes.items()} == {
        "lake": ("iceberg", {"warehouse": "/tmp/lake"}),
        "trial": ("memory", {}),
    }


def test_the_only_one_has_no_name(tmp_path: Path) -> None:
    assert [*load(tmp_path, HEAD + "    destination: {kind: memory}\n").lanes] == [""]
    assert load(tmp_path, HEAD).lanes == {}


def test_variables_reach_into_one_by_the_settings_of_its_kind(tmp_path: Path) -> None:
    variables = {
        "HEADRACE__DESTINATIONS__LAKE__MAINTENANCE__INTERVAL_S": "5",
        "HEADRACE__DESTINATIONS__LAKE__WAREHOUSE": "12",
        "HEADRACE__DESTINATIONS__OTHER__KIND": "null",
    }
    it = load(tmp_path, TWO, variables)
    assert it.destinations["lake"].options == {"warehouse": "12", "maintenance": {"interval_s": "5"}}
    assert it.destinations["other"].kind == "null"


def test_problems_are_told_where_they_stand(tmp_path: Path) -> None:
    text = HEAD + (
        "    destinations:\n"
        "      lake: {kind: iceberg, warehous: /x}\n"
        "      duck: {kind: nothing_like_it}\n"
        "      Nr-1: {kind: memory}\n"
        "      bare:\n"
    )
    found = problems(tmp_path, text)
    assert "destinations.lake.warehous (FILE:6): unknown setting; did you mean destinations.lake.warehouse?" in found
    assert any(line.startswith("destinations.lake.warehouse (FILE:6): is missing") for line in found)
    assert any(line.startswith("destinations.duck.kind (FILE:7): no destination is called") for line in found)
    assert "destinations.Nr-1 (FILE:8): must begin with one of a-z and go on with up to 30 of a-z, 0-9 and _" in found
    assert any(line.startswith("destinations.bare (FILE:9): ") for line in found)


def test_a_variable_that_names_nothing(tmp_path: Path) -> None:
    found = problems(tmp_path, TWO, {"HEADRACE__DESTINATIONS__LAKE__WAREHOUS": "x"})
    assert found == [
        "destinations.lake.warehous (HEADRACE__DESTINATIONS__LAKE__WAREHOUS): "
        "unknown setting; did you mean destinations.lake.warehouse?"
    ]


def test_one_way_or_the_other(tmp_path: Path) -> None:
    assert problems(tmp_path, TWO + "    destination: {kind: memory}\n") == [
        "give destination or destinations, not both"
    ]


def test_two_cannot_share_their_tables(tmp_path: Path) -> None:
    same = TWO + "      again: {kind: iceberg, warehouse: /tmp/lake}\n      more: {kind: memory}\n"
    assert problems(tmp_path, same) == [
        "destinations.again: is the same as destinations.lake: two destinations cannot share their tables"
    ]


@pytest.mark.parametrize(
    ("one", "other", "setting"),
    [
        (
            "kind: duckdb, database: /tmp/x/shop.db",
            "kind: duckdb, database: /tmp/y/../x/shop.db, mode: changelog",
            "database",
        ),
        ("kind: duckdb, database: 'md:shop'", "kind: duckdb, database: 'md:shop', namespace: raw", "database"),
        (
            "kind: ducklake, data_path: /tmp/l, catalog: {uri: /tmp/x/lake.sqlite}",
            "kind: ducklake, data_path: /tmp/l, catalog: {uri: /tmp/x/lake.sqlite}, table_name: 'x_{table}'",
            "catalog",
        ),
        ("kind: iceberg, warehouse: /tmp/x", "kind: iceberg, warehouse: /tmp/y/../x, namespace: log", "catalog"),
        (
            "kind: iceberg, warehouse: 's3://one/x', catalog: {type: glue}",
            "kind: iceberg, warehouse: 's3://other/x', catalog: {type: glue}, mode: changelog",
            "catalog",
        ),
        ("kind: delta, warehouse: /tmp/x", "kind: delta, warehouse: /tmp/x/, mode: changelog", "warehouse"),
        ("kind: parquet, location: /tmp/x", "kind: parquet, location: /tmp/x/, compression: gzip", "location"),
        ("kind: parquet, location: 's3://lake/x'", "kind: parquet, location: 's3://lake/x/'", "location"),
    ],
)
def test_two_cannot_share_what_they_know_of_the_pipeline(tmp_path: Path, one: str, other: str, setting: str) -> None:
    assert problems(tmp_path, f"{TWO}      one: {{{one}}}\n      other: {{{other}}}\n") == [
        f"destinations.other: has the same {setting} as destinations.one: give each destination one of its own"
    ]


def test_two_in_different_places(tmp_path: Path) -> None:
    more = "      one: {kind: duckdb, database: /tmp/one.db}\n      other: {kind: duckdb, database: /tmp/other.db}\n"
    assert {"one", "other"} <= load(tmp_path, TWO + more).lanes.keys()
