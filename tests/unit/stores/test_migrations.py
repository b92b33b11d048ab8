"""migrations: numbered files are found in order; a store ahead of the program is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.errors import StoreVersionError
from headrace.stores.migrations import migrations_of, pending, require_current


def package(tmp_path: Path, name: str, *files: str) -> str:
    folder = tmp_path / name / "migrations"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    for file in files:
        (folder / file).write_text(f"-- {file}")
    return name


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_ours_count_from_one(store: str) -> None:
    found = migrations_of(f"headrace.stores.{store}")
    assert (found[0].version, found[0].name) == (1, "tables")


def test_files_in_order_and_what_is_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = migrations_of(package(tmp_path, "steps_ok", "0002_more.sql", "0001_first.sql", "README.txt"))
    assert [(step.version, step.name, step.sql) for step in found] == [
        (1, "first", "-- 0001_first.sql"),
        (2, "more", "-- 0002_more.sql"),
    ]
    assert [len(pending(found, version, "here")) for version in (0, 1, 2)] == [2, 1, 0]
    with pytest.raises(StoreVersionError, match=r"here has version 3.* up to 2"):
        pending(found, 3, "here")
    require_current(found, 2, "here")
    with pytest.raises(StoreVersionError, match=r"here has version 1, this program's is 2"):
        require_current(found, 1, "here")


def test_a_gap_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ValueError, match="gap"):
        migrations_of(package(tmp_path, "steps_gap", "0001_first.sql", "0003_third.sql"))
