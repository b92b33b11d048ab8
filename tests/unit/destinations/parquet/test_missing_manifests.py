"""Manifests of a Parquet log that were lost: a gap is an error that names what is missing, never fewer rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.parquet import ParquetDestination, open_log
from headrace.destinations.parquet.layout import ManifestKind, ManifestName
from headrace.destinations.parquet.reader import ParquetLog
from headrace.destinations.parquet.storage import Storage
from headrace.errors import DestinationError, RetryPolicy, TableNotFound
from headrace.lsn import Lsn
from headrace.pipeline.replaying import Replay
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS, VISITS
from headrace.testing.local_rows import Inserted, batch_of, local_rows, transaction

CONTEXT = DestinationContext(1, MemoryStore(), None)


def order(key: int) -> dict[str, object]:
    return {"id": key, "name": "a", "note": None}


def opened(location: Path) -> ParquetDestination:
    destination = ParquetDestination(ParquetConfig(location=str(location)))
    destination.startup(CONTEXT)
    destination.claim()
    return destination


def copy(destination: ParquetDestination, key: int, part: int = 0) -> None:
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(key)]), part)


def change(destination: ParquetDestination, key: int) -> None:
    batch = batch_of(transaction(Lsn(key * 100), Inserted(ORDERS, order(key))), end=Lsn(key * 100 + 10))
    destination.write_events(batch)


def written(location: Path) -> ParquetDestination:
    """Two parts of a copy, three batches of changes, and another run with one more."""
    destination = opened(location)
    destination.write_table_rows(VISITS, local_rows(VISITS, [{"page": "a", "seconds": 1}]), 0)
    for part in range(2):
        copy(destination, part, part)
    for key in range(2, 5):
        change(destination, key)
    destination = opened(location)
    change(destination, 5)
    return destination


def path_of(location: Path, sequence: int) -> Path:
    (path,) = location.glob(f"public.orders.*/manifests/*-{sequence:010d}-*.json")
    return path


def keys(location: Path) -> list[int]:
    files = open_log(str(location)).table("public.orders").files()
    return [row["row"]["id"] for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def replayed(location: Path) -> list[int]:
    destination, store = MemoryDestination(), MemoryStore()
    Replay(open_log(str(location)), destination, DestinationContext(1, store, None), store).run()
    return sorted(destination.rows("public.orders")["id"].to_pylist())


def refused(location: Path, sequence: int) -> DestinationError:
    """The error of reading and replaying the log, which are the same."""
    with pytest.raises(DestinationError, match=f"manifest {sequence} of table public.orders") as replaying:
        replayed(location)
    with pytest.raises(DestinationError) as reading:
        keys(location)
    assert str(replaying.value) == str(reading.value)
    return reading.value


@pytest.mark.parametrize("sequence", range(1, 7))
def test_a_manifest_that_is_missing_is_noticed(tmp_path: Path, sequence: int) -> None:
    written(tmp_path)
    assert keys(tmp_path) == replayed(tmp_path) == list(range(6))
    path = path_of(tmp_path, sequence)
    content = path.read_bytes()
    path.unlink()
    error = refused(tmp_path, sequence)
    assert str(tmp_path) in str(error)
    assert error.retry is RetryPolicy.MANUAL
    assert "restore" in error.hint
    assert "headrace resync PIPELINE.YAML public.orders" in error.hint
    # Other tables are read as before.
    assert len(open_log(str(tmp_path)).table("public.visits").files()) == 1
    path.write_bytes(content)
    assert keys(tmp_path) == replayed(tmp_path) == list(range(6))


def test_several_are_named_together(tmp_path: Path) -> None:
    written(tmp_path)
    for sequence in (2, 3, 5):
        path_of(tmp_path, sequence).unlink()
    with pytest.raises(DestinationError, match=r"manifests 2-3, 5 of table public\.orders"):
        keys(tmp_path)


def test_the_files_of_a_missing_manifest_are_kept_for_it(tmp_path: Path) -> None:
    """The next run takes files that no manifest names for those of a failed attempt, but not these."""
    written(tmp_path)
    path = path_of(tmp_path, 4)
    content = path.read_bytes()
    path.unlink()
    with capture_logs() as logged:
        change(opened(tmp_path), 6)
    (warning,) = [line for line in logged if line["log_level"] == "warning"]
    assert (warning["table"], "lacks manifest 4 of table" in warning["event"]) == ("public.orders", True)
    assert "headrace resync PIPELINE.YAML public.orders" in warning["hint"]
    refused(tmp_path, 4)
    path.write_bytes(content)
    assert keys(tmp_path) == replayed(tmp_path) == list(range(7))


def test_a_new_copy_repairs_it_once_it_has_rows(tmp_path: Path) -> None:
    destination = written(tmp_path)
    path_of(tmp_path, 4).unlink()
    destination.drop_table_for_copy(ORDERS)
    refused(tmp_path, 4)
    copy(destination, 10)
    change(destination, 11)
    assert keys(tmp_path) == replayed(tmp_path) == [10, 11]
    # What is left of the generation before may go.
    for path in tmp_path.glob("public.orders.*/manifests/000001-*.json"):
        path.unlink()
    assert keys(tmp_path) == replayed(tmp_path) == [10, 11]


@pytest.mark.parametrize("kind", ["begin", "copy"])
def test_the_begin_of_a_new_copy_is_missing(tmp_path: Path, kind: str) -> None:
    destination = written(tmp_path)
    destination.drop_table_for_copy(ORDERS)
    copy(destination, 10)
    change(destination, 11)
    (path,) = tmp_path.glob(f"public.orders.*/manifests/000002-*-{kind}-*.json")
    name = ManifestName.parse(path.name)
    assert name is not None
    path.unlink()
    refused(tmp_path, name.sequence)


def test_a_new_copy_whose_rows_are_missing_is_not_the_copy_before(tmp_path: Path) -> None:
    destination = written(tmp_path)
    destination.drop_table_for_copy(ORDERS)
    copy(destination, 10)
    opened(tmp_path)
    (path,) = tmp_path.glob("public.orders.*/manifests/000002-*-copy-*.json")
    name = ManifestName.parse(path.name)
    assert name is not None
    path.unlink()
    refused(tmp_path, name.sequence)


def test_a_table_that_left_and_came_back_has_no_gap(tmp_path: Path) -> None:
    destination = written(tmp_path)
    destination.drop_table(ORDERS)
    with pytest.raises(TableNotFound):
        keys(tmp_path)
    copy(destination, 10)
    change(destination, 11)
    change(opened(tmp_path), 12)
    assert keys(tmp_path) == replayed(tmp_path) == [10, 11, 12]


def test_a_removal_under_way_is_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = written(tmp_path)
    delete = Storage.delete

    def cut_off(storage: Storage, paths: list[str]) -> None:
        delete(storage, [path for path in paths if "-0000000003-" in path])

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "delete", cut_off)
        destination.drop_table(ORDERS)
    assert [str(table.name) for table in open_log(str(tmp_path)).tables()] == ["public.visits"]
    copy(destination, 10)
    assert keys(tmp_path) == replayed(tmp_path) == [10]


def test_a_listing_that_a_commit_overtakes_is_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that grows while it is listed may show a later file and not an earlier one."""
    written(tmp_path)
    files, listings = Storage.files, []

    def overtaken(storage: Storage, below: str = "") -> list[str]:
        found = files(storage, below)
        if below.startswith("public.orders."):
            listings.append(below)
        if len(listings) == 1:
            return [path for path in found if "-0000000005-" not in path]
        return found

    monkeypatch.setattr(Storage, "files", overtaken)
    assert keys(tmp_path) == list(range(6))


def test_a_run_that_was_replaced_leaves_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = written(tmp_path)
    commit, seconds = ParquetDestination._commit, []

    def late(destination: ParquetDestination, path: str, content: bytes) -> None:
        if destination is first:
            seconds.append(opened(tmp_path))
        commit(destination, path, content)

    monkeypatch.setattr(ParquetDestination, "_commit", late)
    with pytest.raises(DestinationError, match="another run"):
        change(first, 6)
    (second,) = seconds
    change(second, 6)
    change(second, 7)
    assert keys(tmp_path) == replayed(tmp_path) == list(range(8))


def test_names_alone_tell(tmp_path: Path) -> None:
    """No manifest of the log is opened to find a gap, and a log without epochs has none either."""
    log = written(tmp_path)
    log.shutdown()
    manifests = next(tmp_path.glob("public.orders.*/manifests"))
    for path in manifests.iterdir():
        name = ManifestName.parse(path.name)
        assert name is not None
        if name.kind is not ManifestKind.CLAIM:
            # As versions wrote it whose runs had no epochs.
            path.rename(manifests / path.name.replace(name.attempt, name.attempt[-12:]))
        else:
            path.unlink()
    with pytest.raises(DestinationError, match="manifest 6 of table"):
        keys(tmp_path)
    last = next(manifests.glob("*-0000000007-*"))
    last.rename(manifests / last.name.replace("-0000000007-", "-0000000006-"))
    assert keys(tmp_path) == list(range(6))


def test_lost_at_the_end(tmp_path: Path) -> None:
    """The names cannot tell. The position shows it to the pipeline, whose store knows what was acknowledged."""
    written(tmp_path)
    path_of(tmp_path, 7).unlink()
    assert keys(tmp_path) == list(range(5))
    again = opened(tmp_path)
    assert again.applied_lsn(ORDERS) == Lsn(410)
    shutil.rmtree(next(tmp_path.glob("public.orders.*")))
    found: Any = ParquetLog(Storage(str(tmp_path))).tables()
    assert [str(table.name) for table in found] == ["public.visits"]
    assert opened(tmp_path).applied_lsn(ORDERS) is None
