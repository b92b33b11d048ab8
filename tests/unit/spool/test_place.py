from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec import AbstractFileSystem

from headrace.errors import ConfigError, SpoolCorrupt, SpoolInUse, SpoolIoError
from headrace.spool.contract import Place
from headrace.spool.owner import SpoolOwner, claim, lock, owner_of
from headrace.spool.place import LocalPlace, ObjectPlace, open_place


@pytest.fixture(params=["directory", "fsspec"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return open_place(str(tmp_path / "spool"))
    fsspec.filesystem("memory").rm("/", recursive=True)
    return open_place(f"memory://{tmp_path.name}/spool")


def stage(place: Place, content: bytes) -> Path:
    path = place.staging / "staged"
    path.write_bytes(content)
    return path


def test_what_is_published_is_listed_and_read(place: Place) -> None:
    assert place.entries() == []
    place.publish(stage(place, b"one"), "a")
    place.publish(stage(place, b"three"), "b")
    place.sync()
    assert sorted((entry.name, entry.size) for entry in place.entries()) == [("a", 3), ("b", 5)]
    assert all(entry.modified > 1_700_000_000 for entry in place.entries())
    assert place.read("b").to_pybytes() == b"three"
    assert not (place.staging / "staged").exists()


def test_deleting_twice_is_no_error(place: Place) -> None:
    place.publish(stage(place, b"one"), "a")
    place.delete("a")
    place.delete("a")
    assert place.entries() == []


def test_a_missing_file_is_named(place: Place) -> None:
    with pytest.raises(SpoolCorrupt, match="gone"):
        place.read("gone")


class SharedCache(AbstractFileSystem):
    """A store whose listings are cached, and whose cache another thread fills with what it asked for earlier."""

    protocol = "sharedcache"
    stored = ("old", "new")

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache["bucket/spool"] = [self._item("old")]

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        if not kwargs.get("refresh") and path in self.dircache:
            return list(self.dircache[path])
        return [self._item(name) for name in self.stored]

    def _item(self, name: str) -> dict[str, Any]:
        return {"name": f"bucket/spool/{name}", "size": 1, "type": "file", "mtime": 1.0}


def test_a_listing_is_not_taken_from_a_cache_that_threads_share() -> None:
    fsspec.register_implementation("sharedcache", SharedCache, clobber=True)
    place = open_place("sharedcache://bucket/spool")
    assert sorted(entry.name for entry in place.entries()) == ["new", "old"]


def test_a_path_and_a_file_uri_are_the_same_place(tmp_path: Path) -> None:
    place = open_place(f"file://{tmp_path}/spool")
    assert isinstance(place, LocalPlace)
    assert place.root == tmp_path / "spool"


def test_an_unusable_directory_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(SpoolIoError, match="spool directory"):
        open_place(str(tmp_path / "file" / "spool"))


def test_an_unknown_scheme_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="nonsense://") as caught:
        ObjectPlace("nonsense://bucket/x?secret=hush", {})
    assert "hush" not in str(caught.value)


def test_a_spool_belongs_to_one_slot(place: Place) -> None:
    owner = SpoolOwner("7300", "shop", "headrace_1")
    claim(place, owner)
    claim(place, owner)
    with pytest.raises(ConfigError, match="belongs to slot headrace_1"):
        claim(place, SpoolOwner("7301", "shop", "headrace_1"))


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"\xff{}", b"[]", b'{"system_id": "7300"}'])
def test_an_owner_that_cannot_be_read_is_named(place: Place, content: bytes) -> None:
    place.publish(stage(place, content), "owner.json")
    with pytest.raises(SpoolCorrupt, match=r"spool/owner\.json cannot be read") as caught:
        claim(place, SpoolOwner("7300", "shop", "headrace_1"))
    # The remedy works as printed.
    assert caught.value.hint.startswith("remove the file")
    place.delete("owner.json")
    claim(place, SpoolOwner("7300", "shop", "headrace_1"))
    assert owner_of(place) == SpoolOwner("7300", "shop", "headrace_1")


def test_a_second_receiver_is_kept_out(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path / "spool")
    assert lock(place, "slot") is not None
    with pytest.raises(SpoolInUse, match=f"another receiver .*process {os.getpid()} on "):
        lock(LocalPlace(tmp_path / "spool"), "slot")


def test_the_spool_of_another_slot_is_not_waited_for(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path / "spool")
    assert lock(place, "slot") is not None
    claim(place, SpoolOwner("1", "shop", "slot"))
    with pytest.raises(ConfigError, match="belongs to slot slot, not to slot other"):
        lock(LocalPlace(tmp_path / "spool"), "other")
