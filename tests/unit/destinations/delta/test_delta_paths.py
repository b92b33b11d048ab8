"""Where tables lie: any name has a place of its own, and none lies within another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.destinations.delta.paths import is_local, table_location, table_name, warehouse_location

NAMES = [
    ("public", "orders"),
    ("public", "Größe"),
    ("a/b", "c"),
    ("a", "b/c"),
    ("a", "b", "c"),
    ("a.b", "c"),
    ("public", "_hidden"),
    ("public", "100%"),
    ("public", "~5Fhidden"),
    ("public", "%5Fhidden"),
    ("public", ".."),
    ("public", 'it\'s "so" #1?'),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_comes_back_from_its_place(name: tuple[str, ...]) -> None:
    location = table_location("/w", name)
    _, warehouse, namespace, table = location.split("/")
    assert warehouse == "w"
    assert table_name(namespace, table) == name
    assert not table.startswith((".", "_"))
    assert "%" not in location


def test_no_two_names_share_a_place() -> None:
    assert len({table_location("/w", name) for name in NAMES}) == len(NAMES)


def test_warehouses(tmp_path: Path) -> None:
    assert warehouse_location(str(tmp_path)) == warehouse_location(tmp_path.as_uri()) == str(tmp_path)
    assert warehouse_location("s3a://bucket/path/") == "s3a://bucket/path"
    assert is_local("./warehouse")
    assert not is_local("s3a://bucket/path")
