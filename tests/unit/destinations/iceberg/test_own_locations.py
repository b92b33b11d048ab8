"""Where a new table lies, by where its catalog would put it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.destinations.iceberg.locations import own_location
from headrace.errors import DestinationRejected


def _planned(location: str, *taken: str) -> Any:
    """A table that a catalog did not make yet; `taken` are directories with files."""

    def listed(prefix: str) -> Any:
        return SimpleNamespace(iterator=lambda: SimpleNamespace(hasNext=lambda: prefix in taken))

    return SimpleNamespace(location=lambda: location, io=lambda: SimpleNamespace(listPrefix=listed))


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("file:///w/public/orders", ("public", "orders")),
        ("file:///w/größe 1/a b", ("größe 1", "a b")),
        # The warehouse's own signs are the user's.
        ("s3://bucket/50%:x/public/orders", ("public", "orders")),
        ("s3://bucket/8a1f/9c2e", ("public", "orders")),
    ],
)
def test_the_catalogs_choice(location: str, name: tuple[str, ...]) -> None:
    assert own_location(_planned(location), name) == location


@pytest.mark.parametrize(
    ("location", "name", "own"),
    [
        ("file:///w/a#b/orders", ("a#b", "orders"), "file:///w/a_b/orders"),
        ("file:///w/a?b/c#d", ("a?b", "c#d"), "file:///w/a_b/c_d"),
        ("file:///w/a/../c", ("a/..", "c"), "file:///w/a_../c"),
        ("file:///w/a/../c", ("a", "..", "c"), "file:///w/a/_/c"),
        ("file:///w/a\nb/c\u2028d", ("a\nb", "c\u2028d"), "file:///w/a_b/c_d"),
        ("s3://bucket/50%/a\x85/t", ("a\x85", "t"), "s3://bucket/50%/a_/t"),
        ("s3://bucket/8a1f/9c2e", ("a#b", "t"), "s3://bucket/8a1f/t"),
        ("s3://bucket/shop.db/a:b", ("shop", "a:b"), "s3://bucket/shop.db/a_b"),
    ],
)
def test_no_part_of_a_name_is_taken_for_more(location: str, name: tuple[str, ...], own: str) -> None:
    found = own_location(_planned(location), name)
    assert re.sub("-[0-9a-f]{12}$", "", found) == own != found


def test_one_beside_another_tables_files() -> None:
    location = "s3://bucket/public/orders"
    found = own_location(_planned(location, f"{location}/metadata/"), ("public", "orders"))
    assert re.fullmatch(f"{location}-[0-9a-f]{{12}}", found)


def test_one_beside_another_tables_files_on_this_machine(tmp_path: Path) -> None:
    location = f"file://{tmp_path}/public/größe 1"
    files = tmp_path / "public" / "größe 1" / "data" / "day=1"
    files.mkdir(parents=True)
    assert own_location(_planned(location), ("public", "größe 1")) == location
    (files / "0.parquet").touch()
    assert re.fullmatch(f"{location}-[0-9a-f]{{12}}", own_location(_planned(location), ("public", "größe 1")))


@pytest.mark.parametrize("location", ["file:///w/a#b.db/orders", "s3://bucket/x?y/orders"])
def test_a_place_that_readers_cut_is_refused(location: str) -> None:
    for name in (("a#b", "orders"), ("public", "orders")):
        with pytest.raises(DestinationRejected, match="readers take for another place") as raised:
            own_location(_planned(location), name)
        assert "destination.namespace" in str(raised.value.hint)
