"""A log on a file system of fsspec's that has directories and renames: files are written beside, and then moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.parquet import ParquetDestination, open_log
from headrace.destinations.parquet.layout import ManifestName
from headrace.destinations.parquet.storage import Storage
from headrace.errors import DestinationError
from headrace.lsn import Lsn
from headrace.pipeline.replaying import Replay
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS
from headrace.testing.local_rows import Deleted, Inserted, Updated, batch_of, local_rows, transaction

CONTEXT = DestinationContext(1, MemoryStore(), None)


class Killed(BaseException):
    """The process ends here."""


class Shelf(LocalFileSystem):
    """Known by another name, so that nobody takes it for a directory of this machine."""

    protocol = "shelf"
    moves: ClassVar[list[str]] = []
    failing: BaseException | None = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("shelf://"))

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        failing, Shelf.failing = Shelf.failing, None
        if failing is not None:
            raise failing
        super().mv(path1, path2, **kwargs)
        Shelf.moves.append(path2)


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    fsspec.register_implementation("shelf", Shelf, clobber=True)
    monkeypatch.setattr(Shelf, "moves", [])
    yield f"shelf://{tmp_path}/log"
    Shelf.failing = None


def opened(location: str) -> ParquetDestination:
    destination = ParquetDestination(ParquetConfig(location=location))
    destination.startup(CONTEXT)
    destination.claim()
    return destination


def order(key: int, name: str = "a") -> dict[str, object]:
    return {"id": key, "name": name, "note": None}


def copy(destination: ParquetDestination, *keys: int, part: int = 0) -> None:
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(key) for key in keys]), part)


def change(destination: ParquetDestination, lsn: int, *happened: Any) -> None:
    destination.write_events(batch_of(transaction(Lsn(lsn), *happened), end=Lsn(lsn + 10)))


def rows(location: str) -> list[tuple[int, str]]:
    found = MemoryDestination()
    Replay(open_log(location), found, CONTEXT, MemoryStore()).run()
    return sorted((row["id"], row["name"]) for row in found.rows(ORDERS.table.name).to_pylist())


def staged(tmp_path: Path) -> list[str]:
    """Files that were to be renamed."""
    return [path.name for path in tmp_path.rglob("*.json.*")]


def test_what_is_published_was_written_beside_and_moved(location: str, tmp_path: Path) -> None:
    destination = opened(location)
    copy(destination, 1, 2, 3)
    change(destination, 100, Inserted(ORDERS, order(4)), Updated(ORDERS, order(1, "b")), Deleted(ORDERS, {"id": 2}))
    assert rows(location) == [(1, "b"), (3, "a"), (4, "a")]
    names = [path.rpartition("/")[2] for path in Shelf.moves]
    kinds = [name and name.kind.value for name in map(ManifestName.parse, names)]
    assert (names[0], kinds) == ("headrace.json", [None, "copy", "changes"])
    assert staged(tmp_path) == []
    again = opened(location)
    assert (again.copied_parts(ORDERS), again.applied_lsn(ORDERS)) == ({0}, Lsn(110))


@pytest.mark.parametrize("before", [0, 1])
def test_a_crash_between_writing_and_moving_leaves_nothing_that_counts(
    location: str, tmp_path: Path, before: int
) -> None:
    destination = opened(location)
    for part in range(before):
        copy(destination, part, part=part)
    Shelf.failing = Killed()
    with pytest.raises(Killed):
        copy(destination, 7, 8, part=before)
    assert len(staged(tmp_path)) == 1
    again = opened(location)
    # It is not taken for a manifest, and is removed with the files that it names.
    assert again.copied_parts(ORDERS) == frozenset(range(before))
    assert staged(tmp_path) == []
    assert len(list(tmp_path.rglob("*.parquet"))) == before
    copy(again, 7, 8, part=before)
    Shelf.failing = Killed()
    with pytest.raises(Killed):
        change(again, 100, Inserted(ORDERS, order(9)))
    last = opened(location)
    assert last.applied_lsn(ORDERS) is None
    change(last, 100, Inserted(ORDERS, order(9)))
    assert rows(location) == [(key, "a") for key in (*range(before), 7, 8, 9)]


def test_a_move_that_fails_is_an_error_of_the_destination(location: str) -> None:
    destination = opened(location)
    Shelf.failing = OSError(28, "No space left on device")
    with pytest.raises(DestinationError, match="cannot write") as caught:
        copy(destination, 1)
    assert caught.value.detail == "No space left on device"
    copy(destination, 1)
    assert rows(location) == [(1, "a")]


def test_memory_has_files_as_a_whole_and_moves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage("memory://headrace-test/log")
    moved: list[str] = []
    monkeypatch.setattr(fsspec.filesystem("memory"), "mv", lambda *given: moved.extend(given))
    try:
        storage.publish("a/manifest.json", b"{}")
        assert storage.files() == ["a/manifest.json"]
        assert storage.read("a/manifest.json") == b"{}"
    finally:
        fsspec.filesystem("memory").rm("/headrace-test", recursive=True)
    assert moved == []
