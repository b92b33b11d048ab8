"""Readers of expired snapshots: files that a planned scan refers to stay for the retention time, then they go."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from pyiceberg.io.pyarrow import ArrowScan

from awaiting import until
from damaging import damaged
from headrace.config.iceberg import MaintenanceConfig
from headrace.destinations.iceberg.expired_files import DIRECTORY, DamagedList, ExpiredFiles
from headrace.destinations.iceberg.java import Java
from headrace.destinations.iceberg.maintenance import Maintenance
from headrace.destinations.iceberg.maintenance.expiry import expire_snapshots
from headrace.destinations.iceberg.maintenance.orphans import remove_orphans
from headrace.destinations.iceberg.reachable import comparable, reachable_files
from headrace.destinations.lake.fence import EPOCH
from headrace.destinations.lake.places import file_io
from headrace.errors import DestinationError, DestinationFenced
from iceberg_stream import StreamedTable, streamed_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_SNAPSHOT = MaintenanceConfig(small_files=2, snapshots_kept=1)
HOUR_MS = 3_600_000
Rows = dict[int, tuple[int, int, str]]


class ReadTable(StreamedTable):
    """A table with what a reader and the clock of its maintenance need."""

    def __init__(self, spark: SparkSession, warehouse: Path) -> None:
        super().__init__(streamed_catalog(Java(spark), warehouse), warehouse)
        self.now_ms = int(time.time() * 1000)
        self.location = warehouse / "public" / "t"

    def expire(self, hours: float = 0, settings: MaintenanceConfig = ONE_SNAPSHOT) -> int:
        """Expire all snapshots but one, some hours from now, and check that all files in use are still there."""
        expired = expire_snapshots(self.catalog, self, settings, self.now_ms + int(hours * HOUR_MS))
        self.check_whole()
        return expired

    def in_use(self) -> set[Path]:
        """All files that the table refers to."""
        java = self.catalog.load(self.name)
        return {Path("/" + place) for place in reachable_files(self.catalog.java, java)}

    def on_disk(self) -> set[Path]:
        """All files of the table, its lists of expired files excepted."""
        return {path for path in self.location.rglob("*") if path.is_file() and path.parent.name != DIRECTORY}

    def lists(self) -> list[Path]:
        return sorted((self.location / DIRECTORY).glob("*"))

    def kept_for_readers(self) -> set[Path]:
        return self.on_disk() - self.in_use()

    def check_whole(self) -> None:
        hint = self.location / "metadata" / "version-hint.text"
        assert self.in_use() - {hint} <= self.on_disk()
        assert self.read() == self.rows

    def lists_of(self, table: Any = None) -> ExpiredFiles:
        java, layout = self.catalog.java, self.open_table.layout
        return ExpiredFiles(java, table or self.catalog.load(self.name), file_io(layout), layout.name)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> ReadTable:
    made = ReadTable(spark, tmp_path)
    for n in range(3):
        made.change([(n * 10 + key, n, "x") for key in range(10)], deletes=[n * 10 - 1])
    return made


def rows_of(scan: Any, tasks: Sequence[Any]) -> Rows:
    """Read a scan as it was planned."""
    read = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter).to_table(tasks)
    return {row["id"]: (row["id"], row["n"], row["doc"]) for row in read.to_pylist()}


def test_a_scan_reads_all_of_its_files_long_after_its_snapshot_expired(table: ReadTable) -> None:
    scan, rows = table.reader().scan(), dict(table.rows)
    planned = list(scan.plan_files())
    assert any(task.delete_files for task in planned)
    # When its snapshot expired, its data files were compacted away, and a search looked for orphans of any age
    maintenance = Maintenance(table.catalog, ONE_SNAPSHOT, lambda: [table])
    for n in range(4):
        table.change([(5000 + n, 1, "x")], deletes=[sorted(table.rows)[0]])
        maintenance.look()
    table.restarted()
    eager = ONE_SNAPSHOT.model_copy(update={"orphan_age_s": 0})
    remove_orphans(table.catalog, table, eager, dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
    assert len(table.reader().snapshots()) == 1
    # Then it reads what it was planned for, and a reader that has only loaded the metadata can still plan
    assert rows_of(scan, planned) == rows
    assert rows_of(scan, list(scan.plan_files())) == rows
    # And after the retention time nothing is left but what is in use
    table.expire(hours=5.9)
    assert rows_of(scan, planned) == rows
    table.expire(hours=6.3)
    assert table.kept_for_readers() == set()
    assert table.lists() == []


def test_a_crash_before_the_expiry_and_a_late_one(table: ReadTable, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ExpiredFiles.add

    def crash(*arguments: Any) -> None:
        listed(*arguments)
        raise KeyboardInterrupt

    scan, rows = table.reader().scan(), dict(table.rows)
    planned = list(scan.plan_files())
    table.change([(5000, 1, "x")], deletes=[0])
    Maintenance(table.catalog, ONE_SNAPSHOT.model_copy(update={"snapshots_kept": 100}), lambda: [table]).look()
    with monkeypatch.context() as patch:
        patch.setattr(ExpiredFiles, "add", crash)
        with pytest.raises(KeyboardInterrupt):
            table.expire()
    # Given a list of files that are in use
    (first,) = table.lists()
    before = table.on_disk()
    # When the snapshots expire hours later
    table.expire(hours=5.9)
    # Then the time of their expiry counts, not that of the first list
    table.expire(hours=6.3)
    assert not first.exists()
    assert rows_of(scan, planned) == rows
    assert before - table.on_disk() == set()
    table.expire(hours=12.2)
    assert table.kept_for_readers() == set()
    assert table.lists() == []


def test_a_crash_after_the_expiry_loses_no_file(table: ReadTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    before = table.on_disk()
    with monkeypatch.context() as patch:
        patch.setattr(ExpiredFiles, "remove", crash)
        with pytest.raises(KeyboardInterrupt):
            table.expire()
    # Given another run, whose search takes files of earlier runs that nobody refers to
    table.restarted()
    remove_orphans(table.catalog, table, MaintenanceConfig(), dt.datetime.now(dt.UTC))
    assert before & table.kept_for_readers() != set()
    assert {comparable(str(path)) for path in table.kept_for_readers()} == table.lists_of().pending()
    table.expire(hours=6.3)
    assert table.kept_for_readers() == set()


def test_a_deletion_whose_answer_was_lost_is_repeated(table: ReadTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.expire()
    plain = Java.remove_files

    def lose(*arguments: Any) -> None:
        plain(*arguments)
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(Java, "remove_files", lose)
        with pytest.raises(Exception, match="cannot delete files of expired snapshots"):
            table.expire(hours=6.3)
    assert len(table.lists()) == 1
    table.expire(hours=6.3)
    assert table.lists() == []
    assert table.kept_for_readers() == set()


def test_a_list_that_has_files_in_use_or_is_damaged(table: ReadTable) -> None:
    # Given a list left over: the table was rolled back to a state whose files it has
    table.lists_of().add([str(path) for path in (*table.in_use(), table.location / "data" / "gone")], 0)
    (table.location / DIRECTORY / "00000000000001-5-abc.json").write_text('["/somewhere')
    table.expire()
    assert [path.name.split("-")[0] for path in table.lists()] == [f"{table.now_ms:014d}"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
def test_a_damaged_list_deletes_nothing_before_its_time(table: ReadTable, seed: int) -> None:
    table.expire()
    held = table.kept_for_readers()
    (path,) = table.lists()
    # Given another run, whose search takes files of earlier runs that nobody refers to
    table.restarted()
    table.change([(5000, 1, "x")], deletes=[0])
    at = dt.datetime.now(dt.UTC) + dt.timedelta(days=4)
    for what, content in damaged(path.read_bytes(), seed, 4, 1):
        path.write_bytes(content)
        # Then no file goes before the retention time of the damaged list is over, and the error names the list
        with pytest.raises(DamagedList, match=path.name):
            remove_orphans(table.catalog, table, MaintenanceConfig(), at)
        assert held <= table.on_disk(), what
    table.expire(hours=5.9)
    # And nothing is left afterwards
    with structlog.testing.capture_logs() as logs:
        table.expire(hours=6.3)
    assert [path.name in entry["event"] for entry in logs if entry["log_level"] == "warning"] == [True]
    assert path not in table.lists()
    table.expire(hours=12.2)
    remove_orphans(table.catalog, table, MaintenanceConfig(), at)
    assert table.kept_for_readers() == set()
    assert table.lists() == []
    table.check_whole()


def test_a_damaged_list_keeps_files_of_older_lists(table: ReadTable) -> None:
    """It may have the same files: their snapshots expired after all, later."""
    table.expire()
    held = table.kept_for_readers()
    table.change([(5000, 1, "x")], deletes=[0])
    table.expire(hours=1)
    first, second = table.lists()
    second.write_bytes(second.read_bytes()[:-1])
    with pytest.raises(DamagedList, match=second.name):
        table.expire(hours=6.3)
    assert held <= table.on_disk()
    assert first.exists()
    table.expire(hours=7.3)
    assert held & table.on_disk() == set()


def test_a_list_of_an_earlier_version_has_no_checksum(table: ReadTable) -> None:
    table.expire()
    (path,) = table.lists()
    stem, held = path.name.removesuffix(".json"), table.kept_for_readers()
    path.rename(path.with_name(f"{stem[:-8]}.json"))
    assert table.lists_of().pending() == {comparable(str(path)) for path in held}
    table.expire(hours=6.3)
    assert table.kept_for_readers() == set()
    assert table.lists() == []


def test_the_space_limit_takes_the_oldest_files_first(table: ReadTable) -> None:
    table.expire()
    (oldest,) = table.lists()
    held = table.kept_for_readers()
    table.change([(100, 1, "x")], deletes=[0])
    table.expire(hours=1)
    total = sum(path.stat().st_size for path in table.kept_for_readers())
    assert sum(int(path.name.split("-")[1]) for path in table.lists()) == total
    limited = ONE_SNAPSHOT.model_copy(update={"retention_bytes": total - 1})
    with structlog.testing.capture_logs() as logs:
        table.expire(hours=2, settings=limited)
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert "exceed maintenance.retention_bytes" in warning["event"]
    assert (warning["bytes"], warning["age_s"]) == (total, 7200)
    assert not oldest.exists()
    assert held & table.on_disk() == set()
    assert len(table.lists()) == 1
    assert table.kept_for_readers() != set()


def test_a_run_that_was_replaced_deletes_nothing(table: ReadTable) -> None:
    table.expire()
    replaced = SimpleNamespace(name=table.name, lock=table.lock, table=table.open_table, copying=False)
    table.restarted()
    table.change([(100, 1, "x")])
    assert table.open_table.properties()[EPOCH] == "2"
    before = table.on_disk(), table.lists(), len(table.reader().snapshots())
    with pytest.raises(DestinationFenced, match="another run of pipeline 7 has taken over table"):
        expire_snapshots(table.catalog, replaced, ONE_SNAPSHOT, table.now_ms + 7 * HOUR_MS)
    assert (table.on_disk(), table.lists(), len(table.reader().snapshots())) == before
    table.expire(hours=7)
    assert table.kept_for_readers() < before[0]


def test_maintenance_ends_when_another_run_has_claimed_the_pipeline(table: ReadTable) -> None:
    def fenced() -> None:
        msg = "another run of pipeline 7 has taken over this destination"
        raise DestinationFenced(msg)

    often = ONE_SNAPSHOT.model_copy(update={"interval_s": 0.01, "retention_s": 0})
    maintenance = Maintenance(table.catalog, often, lambda: [table])
    before = table.on_disk()
    with structlog.testing.capture_logs() as logs:
        maintenance.start(fenced)
        until(lambda: all(thread.name != "headrace-maintenance" for thread in threading.enumerate()))
    assert [entry["event"] for entry in logs] == ["another run has taken over; maintenance ends"]
    assert table.on_disk() == before


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_dropped_table_leaves_no_files_of_expired_snapshots(table: ReadTable, is_readable: bool) -> None:
    table.expire()
    assert table.kept_for_readers() != set()
    if not is_readable:
        for path in (table.location / "metadata").glob("snap-*.avro"):
            path.unlink()
    with structlog.testing.capture_logs() as logs, contextlib.suppress(DestinationError):
        table.catalog.drop(table.name)
    events = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
    assert events == ([] if is_readable else ["files of expired snapshots are left"])
    assert table.catalog.load(table.name) is None
    assert not is_readable or [path for path in table.location.rglob("*") if path.is_file()] == []
