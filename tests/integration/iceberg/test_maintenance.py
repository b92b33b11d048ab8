"""Maintenance of Iceberg tables: rows stay as they are through it, whatever the stream does meanwhile."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from headrace.config.iceberg import MaintenanceConfig
from headrace.destinations.iceberg.java import Java
from headrace.destinations.iceberg.maintenance import Maintenance
from headrace.destinations.iceberg.maintenance.compaction import Compaction
from headrace.destinations.iceberg.maintenance.expiry import expire_snapshots
from headrace.destinations.iceberg.maintenance.orphans import remove_orphans
from headrace.destinations.iceberg.reachable import reachable_files
from headrace.destinations.lake.maintenance.held import Stopped
from headrace.errors import DestinationError
from iceberg_duckdb import duckdb_with_iceberg, local_path
from iceberg_stream import BY_BUCKET, UNPARTITIONED, StreamedTable, streamed_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EAGER = MaintenanceConfig(small_files=4, snapshot_age_s=86_400, snapshots_kept=5, retention_s=0)


def going() -> None:
    """Nobody stops it."""


@pytest.fixture
def make_table(spark: SparkSession, tmp_path: Path) -> Any:
    def make(**options: Any) -> StreamedTable:
        return StreamedTable(streamed_catalog(Java(spark), tmp_path), tmp_path, **options)

    return make


def written(table: StreamedTable, commits: int, rows: int = 20) -> None:
    for commit in range(commits):
        table.change([(commit * rows + n, commit, f"doc {n}") for n in range(rows)])


def compaction(table: StreamedTable, settings: MaintenanceConfig = EAGER) -> Compaction:
    found = Compaction.of(table.catalog, table, settings)
    assert found is not None
    return found


def lineage(spark: SparkSession, table: StreamedTable) -> dict[int, tuple[int, int]]:
    """Row id and sequence number by key, as Spark reads them."""
    java = table.catalog.load(table.name)
    assert java is not None
    location = java.operations().current().metadataFileLocation()
    rows = spark.read.format("iceberg").load(location).select("id", "_row_id", "_last_updated_sequence_number")
    return {row[0]: (row[1], row[2]) for row in rows.collect()}


def test_no_manifest_is_left_of_those_that_a_commit_merges(make_table: Any) -> None:
    table = make_table()
    written(table, 32, rows=1)
    found = {path.name for path in (table.warehouse / "public/t/metadata").glob("*-m*.avro")}
    java = table.catalog.load(table.name)
    named = {path.rpartition("/")[2] for path in reachable_files(table.catalog.java, java)}
    merged = [manifest for manifest in java.currentSnapshot().allManifests(java.io()) if manifest.existingFilesCount()]
    assert merged, "nothing was merged"
    assert found <= named


@pytest.mark.parametrize(
    "options",
    [{"spec": UNPARTITIONED}, {"spec": BY_BUCKET}, {"spec": UNPARTITIONED, "sort_by": "id"}],
    ids=["plain", "partitioned", "sorted"],
)
def test_rows_stay_while_the_stream_goes_on(make_table: Any, options: dict[str, Any]) -> None:
    table = make_table(**options)
    written(table, 4)
    table.change([(5, 77, "updated")], deletes=[21, 22])
    # Given files that are written anew, and rows of them updated and deleted before that is committed
    one = compaction(table)
    ready = [one.rewrite(sources, going) for sources in one.sources()]
    table.change([(6, 88, "meanwhile"), (41, 88, "meanwhile"), (1000, 1, "new")], deletes=[0, 23, 79])
    # When it is committed
    committed = [one.commit(rewritten) for rewritten in ready]
    assert committed == [True] * len(committed) != []
    # Then
    assert table.read() == table.rows
    assert len(table.open_table.files().live) <= 4
    # And what the stream keeps in memory is what is there: it goes on from it, and a second compaction too
    table.change([(7, 99, "later"), (41, 99, "later")], deletes=[1, 1000])
    written(table, 3)
    assert compaction(table).run(going) > 0
    assert table.read() == table.rows


def test_rows_keep_their_identity(make_table: Any, spark: SparkSession) -> None:
    table = make_table(sort_by="id")
    written(table, 4, rows=3)
    table.change(deletes=[4])
    before = lineage(spark, table)
    assert compaction(table).run(going) == 1
    # A second time: of a file that has them as columns, and files that have not.
    written(table, 3, rows=3)
    changed = {key: value for key, value in lineage(spark, table).items() if key >= 9}
    assert compaction(table, MaintenanceConfig(small_files=2)).run(going) == 1
    after = lineage(spark, table)
    assert {key: after[key] for key in before if key >= 9} == changed
    assert {key: after[key] for key in changed} == changed


def test_random_changes_while_compacting(make_table: Any) -> None:
    table, randomly = make_table(sort_by="n"), random.Random(5)
    settings = MaintenanceConfig(small_files=2, deleted_ratio=0.01)

    def change() -> None:
        keys = randomly.sample(range(60), 8)
        table.change([(key, randomly.randrange(100), "x") for key in keys[:5]], deletes=keys[5:])

    for _ in range(5):
        change()
    for _ in range(4):
        one = compaction(table, settings)
        ready = [one.rewrite(sources, going) for sources in one.sources()]
        for _ in range(randomly.randrange(4)):
            change()
        for rewritten in ready:
            assert one.commit(rewritten)
            assert table.read() == table.rows
    assert {path for path in table.files() if path.suffix == ".parquet"} >= table.live_files() - {
        path for path in table.live_files() if path.suffix == ".puffin"
    }


def test_files_that_the_stream_emptied_meanwhile(make_table: Any) -> None:
    table = make_table()
    written(table, 5, rows=3)
    one = compaction(table)
    ready = [one.rewrite(sources, going) for sources in one.sources()]
    table.change(deletes=[0, 1, 2, 4])
    assert [one.commit(rewritten) for rewritten in ready] == [True]
    assert table.read() == table.rows
    # All of them: nothing is left to put in their place.
    written(table, 5, rows=3)
    one = compaction(table)
    ready = [one.rewrite(sources, going) for sources in one.sources()]
    table.change(deletes=list(range(15)))
    assert [one.commit(rewritten) for rewritten in ready] == [False]
    assert table.read() == table.rows == {}
    assert not {Path(file.path.removeprefix("file://")) for file in ready[0].data} & table.files()


def test_a_group_replaced_by_another_is_given_up(make_table: Any) -> None:
    table = make_table()
    written(table, 5)
    slow, quick = compaction(table), compaction(table)
    late = [slow.rewrite(sources, going) for sources in slow.sources()]
    assert quick.run(going) == 1
    table.change([(3, 5, "changed")], deletes=[4])
    assert [slow.commit(rewritten) for rewritten in late] == [False]
    assert table.read() == table.rows
    assert not {Path(file.path.removeprefix("file://")) for file in late[0].data} & table.files()


def test_rows_that_came_back_by_a_rollback_are_not_lost(make_table: Any) -> None:
    table = make_table()
    written(table, 5)
    before = table.open_table.files().snapshot
    rows = dict(table.rows)
    table.change(deletes=[3])
    one = compaction(table)
    ready = [one.rewrite(sources, going) for sources in one.sources()]
    table.open_table.java_table.manageSnapshots().rollbackTo(before).commit()
    assert [one.commit(rewritten) for rewritten in ready] == [False]
    assert table.read() == rows


def test_a_file_with_many_deleted_rows_is_written_anew(make_table: Any) -> None:
    table = make_table()
    written(table, 1, rows=100)
    table.change(deletes=range(29))
    assert compaction(table).groups() == []
    table.change(deletes=[29])
    assert compaction(table).run(going) == 1
    assert [(file.records, file.vector) for file in table.open_table.files().live.values()] == [(70, None)]
    assert table.read() == table.rows


def test_columns_added_later_are_null_in_older_files(make_table: Any, spark: SparkSession) -> None:
    table = make_table()
    written(table, 4)
    update = table.open_table.java_table.updateSchema()
    update.addColumn("extra", table.catalog.java.iceberg.types.Types.StringType.get()).renameColumn("doc", "text")
    update.commit()
    assert compaction(table).run(going) == 1
    found = table.scan()
    assert found.column("extra").null_count == found.num_rows == len(table.rows)
    assert sorted(found.column("text").to_pylist()) == sorted(row[2] for row in table.rows.values())


def test_stopping_gives_up_and_leaves_nothing(make_table: Any) -> None:
    table = make_table()
    written(table, 5)
    calls = 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise Stopped

    before = table.files()
    with pytest.raises(Stopped):
        compaction(table).run(stop)
    assert table.files() == before
    assert table.read() == table.rows


def test_expiry_removes_what_only_old_snapshots_used(make_table: Any) -> None:
    table = make_table()
    written(table, 8)
    compaction(table).run(going)
    # Vectors of two data files in one commit, of which later commits replace one: the other stays in use.
    written_keys = sorted(table.rows)
    table.change([(1000 + n, 1, "x") for n in range(5)])
    table.change(deletes=[written_keys[0], 1000])
    for key in (1001, 1002, 1003):
        table.change(deletes=[key])
    for _ in range(3):
        now = int(time.time() * 1000)
        expire_snapshots(table.catalog, table, EAGER, now)
        table.change([(2000, 1, "again")])
    assert table.read() == table.rows
    one = EAGER.model_copy(update={"snapshots_kept": 1})
    assert expire_snapshots(table.catalog, table, one, int(time.time() * 1000)) == 5
    assert table.files() == table.live_files()
    assert table.read() == table.rows
    table.change(deletes=[written_keys[1]])
    assert table.open_table.record().lsn is not None


def test_expiry_by_age_keeps_tags_and_the_current(make_table: Any) -> None:
    table = make_table()
    written(table, 4)
    java = table.catalog.load(table.name)
    second = [int(snapshot.snapshotId()) for snapshot in java.snapshots()][1]
    java.manageSnapshots().createTag("month-end", second).commit()
    later = int(time.time() * 1000) + 10_000
    assert expire_snapshots(table.catalog, table, MaintenanceConfig(snapshot_age_s=5), later) == 2
    java.refresh()
    assert {int(snapshot.snapshotId()) for snapshot in java.snapshots()} == {
        second,
        int(java.currentSnapshot().snapshotId()),
    }


def test_orphans_of_a_killed_run_go_and_nothing_else(make_table: Any) -> None:
    table = make_table()
    written(table, 4)
    table.change(deletes=[1, 25])
    data = table.warehouse / "public/t/data"
    left = [data / "headrace-7-e1xaaaaaaaaaaaa-left.parquet", data / "headrace-7-e1xaaaaaaaaaaaa-left.puffin"]
    kept = [
        data / "headrace-7-e2xbbbbbbbbbbbb-now.parquet",
        data / "headrace-71-e1xaaaaaaaaaaaa-other.parquet",
        data / "00000-0-of-spark.parquet",
        data.parent / "metadata/young.avro",
    ]
    old = [data / "00000-1-of-spark.parquet", data.parent / "metadata/old.avro"]
    beside = data.parent / "nested/data/of-another-table.parquet"
    beside.parent.mkdir(parents=True)
    for path in (*left, *kept, *old, beside):
        path.write_bytes(b"x")
    four_days_ago = time.time() - 4 * 86_400
    for path in (*old, beside, *table.live_files()):
        os.utime(path, (four_days_ago, four_days_ago))
    before = {path for path in data.parent.rglob("*") if path.is_file()}
    table.restarted()
    now = dt.datetime.now(dt.UTC)
    assert remove_orphans(table.catalog, table, MaintenanceConfig(), now) == 4
    after = {path for path in data.parent.rglob("*") if path.is_file()}
    assert before - after == {*left, *old}
    assert table.read() == table.rows


def test_old_snapshots_stay_readable_after_a_search_for_orphans(make_table: Any) -> None:
    table = make_table()
    written(table, 5)
    table.change(deletes=[1, 25])
    java = table.catalog.load(table.name)
    oldest = json.loads(table.catalog.java.iceberg.TableMetadataParser.toJson(java.operations().current()))
    compaction(table).run(going)
    table.restarted()
    # Also with no age at all: what a snapshot names is no orphan.
    remove_orphans(table.catalog, table, MaintenanceConfig(orphan_age_s=0), dt.datetime.now(dt.UTC))
    for snapshot in oldest["snapshots"]:
        scan = table.open_table.java_table.newScan().useSnapshot(snapshot["snapshot-id"])
        for task in table.catalog.java.list_of(scan.planFiles()):
            assert Path(str(task.file().location()).removeprefix("file://")).exists()
    assert table.read() == table.rows


def test_no_orphan_is_removed_when_files_in_use_are_not_listed(make_table: Any) -> None:
    table = make_table()
    written(table, 2)
    left = table.warehouse / "public/t/data/headrace-7-e1xaaaaaaaaaaaa-left.parquet"
    left.write_bytes(b"x")
    table.restarted()
    sorted(table.live_files())[0].rename(table.warehouse / "elsewhere")
    with pytest.raises(DestinationError, match="lacks 1 files that are in use"):
        remove_orphans(table.catalog, table, MaintenanceConfig(), dt.datetime.now(dt.UTC))
    assert left.exists()


def test_no_separator_in_a_path_makes_orphans_of_files_in_use(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = tmp_path / "a\u2028b\x85c\x1cd"
    table = StreamedTable(streamed_catalog(Java(spark), warehouse), warehouse)
    written(table, 2)
    table.change(deletes=[1])
    left = warehouse / "public/t/data/headrace-7-e1xaaaaaaaaaaaa-left.parquet"
    left.write_bytes(b"x")
    table.restarted()
    assert remove_orphans(table.catalog, table, MaintenanceConfig(), dt.datetime.now(dt.UTC)) == 1
    assert not left.exists()
    assert table.read() == table.rows


def test_the_thread_looks_after_tables_and_stops(make_table: Any) -> None:
    table = make_table()
    written(table, 5)
    settings = EAGER.model_copy(update={"interval_s": 0.01})
    maintenance = Maintenance(table.catalog, settings, lambda: [table])
    maintenance.start(going)
    deadline = time.monotonic() + 60
    while len(table.open_table.files().live) > 1 and time.monotonic() < deadline:
        with table.lock:
            table.open_table.refresh()
    maintenance.stop()
    assert len(table.open_table.files().live) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-maintenance"]
    assert table.read() == table.rows
    with pytest.raises(Stopped):
        maintenance.maintain(table)


def test_errors_are_told_once_and_go_no_further(make_table: Any) -> None:
    table = make_table()
    written(table, 5)
    for path in table.files():
        path.unlink()
    maintenance = Maintenance(table.catalog, EAGER, lambda: [table])
    with structlog.testing.capture_logs() as logs:
        maintenance.look()
        table.change([(9999, 1, "x")])
        maintenance.look()
    steps = [entry["step"] for entry in logs if entry["event"].startswith("maintenance failed")]
    assert steps == ["compaction", "orphans"]


def _many_commits(table: StreamedTable, commits: int, every: int, rows: int = 20) -> list[float]:
    """A day of one-second batches in small: each inserts, updates older rows, and deletes some. Seconds of each."""
    randomly, taken = random.Random(1), []
    maintenance = Maintenance(table.catalog, MaintenanceConfig(), lambda: [table])
    first = len(table.rows)
    for commit in range(first // rows, first // rows + commits):
        new = [(commit * rows + n, commit, f"doc {n}") for n in range(rows)]
        updated = [(randomly.randrange(commit * rows + 1), commit, "updated") for _ in range(5)]
        start = time.perf_counter()
        table.change([*updated, *new], deletes=[randomly.randrange(commit * rows + 1)])
        taken.append(time.perf_counter() - start)
        if (commit - first // rows) % every == every - 1:
            maintenance.look()
    return taken


def test_many_small_commits_leave_few_files(make_table: Any) -> None:
    table = make_table()
    _many_commits(table, 120, every=40)
    live = table.open_table.files().live.values()
    assert len(live) < 20
    assert len([file for file in live if file.vector is not None]) < 20
    java = table.catalog.load(table.name)
    assert len(list(java.snapshots())) <= 110
    assert table.read() == table.rows
    with duckdb_with_iceberg() as connection:
        found = connection.execute(f"SELECT id FROM iceberg_scan('{local_path(table.metadata())}')").fetchall()
    assert sorted(row_id for (row_id,) in found) == sorted(table.rows)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_table_of_5000_small_commits_is_read_as_fast_as_a_compacted_one(make_table: Any) -> None:
    table = make_table()
    table.copied(1_000_000)
    # The last look at it is 20 commits ago, as a reader may find it.
    taken = _many_commits(table, 5_000, every=60, rows=100)
    by_500 = [round(median(taken[start : start + 500]), 3) for start in range(0, len(taken), 500)]
    live = table.open_table.files().live.values()
    vectors = [file.vector for file in live if file.vector is not None]
    print(f"seconds of a commit, median by 500: {by_500}; {len(live)} files, {len(vectors)} with a deletion vector")
    assert table.read() == table.rows
    maintained, compacted = scan_times(table)
    print(f"seconds of a scan: {maintained:.4f}, and {compacted:.4f} compacted: {maintained / compacted:.2f} times")
    assert maintained < 2 * compacted, (maintained, compacted)
    assert table.read() == table.rows


def scan_times(table: StreamedTable) -> tuple[float, float]:
    """Median seconds of DuckDB's scan of the table as it is, and as it is once fully compacted."""
    as_is = table.metadata()
    assert compaction(table, MaintenanceConfig(small_files=2, deleted_ratio=0.000001)).run(going) >= 1
    live = table.open_table.files().live.values()
    assert len(live) <= 3
    assert [file.vector for file in live] == [None] * len(live)
    keys = sum(table.rows)
    times: dict[str, list[float]] = {as_is: [], table.metadata(): []}
    with duckdb_with_iceberg() as connection:
        # In turn: what else the machine does slows both. The first of each is not counted: it reads from disk.
        for turn in range(1 + 15):
            for metadata, taken in times.items():
                start = time.perf_counter()
                found = connection.execute(
                    f"SELECT count(*), sum(id), sum(n), sum(length(doc)) FROM iceberg_scan('{local_path(metadata)}')"
                ).fetchone()
                if turn:
                    taken.append(time.perf_counter() - start)
                assert found is not None
                assert found[:2] == (len(table.rows), keys)
    maintained, compacted = (median(taken) for taken in times.values())
    return maintained, compacted
