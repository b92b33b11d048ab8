"""A scan that takes half an hour, of a table with a commit every second and default maintenance, reads all its files.

HEADRACE_SCAN_S shortens it; below three minutes no snapshot of the scan expires. What the table grows to is printed.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import ArrowScan

from headrace.destinations.iceberg import IcebergDestination
from headrace.destinations.iceberg.expired_files import DIRECTORY
from headrace.stores import MemoryStore
from headrace.testing.canonical import canonical, canonical_text
from iceberg_duckdb import local_path
from lakehouse import Lake, canonical_rows, iceberg_settings, lake
from pipelining import Piped, piped, pipeline_config, source_rows, wait_equal

SOURCE = """
CREATE TABLE items (id bigint PRIMARY KEY, note text);
INSERT INTO items SELECT n, 'first' FROM generate_series(1, 20000) n;
CREATE PUBLICATION pub FOR TABLE items;
"""
# A commit of the load: rows are added, changed and deleted, so that files get vectors and are merged.
LOAD = """
INSERT INTO items SELECT 100000 + %(n)s * 20 + k, 'new' FROM generate_series(1, 20) k;
UPDATE items SET note = 'changed in ' || %(n)s WHERE id IN (%(n)s %% 20000, 100000 + %(n)s * 20 - 7);
DELETE FROM items WHERE id = 100000 + %(n)s * 20 - 19;
"""
TABLE = "public.items"
_SCAN_S = float(os.environ.get("HEADRACE_SCAN_S", "1800"))
_SAMPLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """What a table consists of at one time."""

    seconds: int
    commits: int
    snapshots: int
    metadata_bytes: int
    """Of the current metadata file."""
    data_files: int
    metadata_files: int
    lists: int
    total_bytes: int
    """Of all files below the table."""

    @classmethod
    def of(cls, warehouse: Path, seconds: float, commits: int) -> Size:
        table, location = lake(warehouse).load_table(TABLE), warehouse / "public" / "items"
        found: dict[str, int] = {"data": 0, "metadata": 0, DIRECTORY: 0}
        total = 0
        for path in location.rglob("*"):
            if path.is_file():
                found[path.relative_to(location).parts[0]] += 1
                total += path.stat().st_size
        metadata = Path(local_path(table.metadata_location)).stat().st_size
        kept = found["data"], found["metadata"], found[DIRECTORY]
        return cls(round(seconds), commits, len(table.snapshots()), metadata, *kept, total)


class Load(threading.Thread):
    """Commits to the source once a second until it is stopped."""

    def __init__(self, conninfo: str) -> None:
        super().__init__(name="load", daemon=True)
        self.commits, self._conninfo, self._stopping = 0, conninfo, threading.Event()

    def run(self) -> None:
        start = time.monotonic()
        with psycopg.connect(self._conninfo) as connection:
            while not self._stopping.wait(max(0.0, start + self.commits - time.monotonic())):
                with psycopg.ClientCursor(connection) as cursor:
                    cursor.execute(LOAD, {"n": self.commits + 1})
                connection.commit()
                self.commits += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.long
@pytest.mark.timeout(_SCAN_S + 1800)
def test_a_scan_of_half_an_hour_under_a_commit_per_second(
    conninfo: str, connection: psycopg.Connection[Any], tmp_path: Path, spark: Any
) -> None:
    connection.execute(SOURCE)
    warehouse = tmp_path / "warehouse"
    destination = IcebergDestination(iceberg_settings(warehouse, maintenance={}))
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
        running.until_ready()
        for n in range(-20, 0):
            with psycopg.ClientCursor(connection) as cursor:
                cursor.execute(LOAD, {"n": n})
            running.until_applied(connection)
        # Given a scan, planned on files with deletion vectors
        scan, rows = lake(warehouse).load_table(TABLE).scan(), source_rows(connection, "items")
        planned = list(scan.plan_files())
        assert any(task.delete_files for task in planned)
        load = Load(conninfo)
        load.start()
        try:
            # When it reads its files one by one, for so long
            read, sizes = scan_slowly(running, scan, planned, load)
        finally:
            load.stop()
        # Then all rows are there, though its snapshot expired and files of it have left the table
        assert sorted(canonical_text(canonical(row)) for row in canonical_rows(read)) == rows
        current = lake(warehouse).load_table(TABLE)
        assert scan.snapshot() is not None
        assert scan.snapshot().snapshot_id not in {snapshot.snapshot_id for snapshot in current.snapshots()}
        used = set(current.inspect.all_files()["file_path"].to_pylist())
        left = [task.file.file_path for task in planned if task.file.file_path not in used]
        print(f"{len(left)} of the {len(planned)} files of the scan were no longer in use at its end")
        assert left
        wait_equal(running, connection, Lake(lake(warehouse)), TABLE)
    report(sizes)


def scan_slowly(running: Piped, scan: Any, planned: list[Any], load: Load) -> tuple[pa.Table, list[Size]]:
    start, read = time.monotonic(), list[pa.Table]()
    sizes: list[Size] = []
    arrow = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
    warehouse = Path(local_path(scan.table_metadata.location)).parent.parent
    for place, task in enumerate(planned, 1):
        due = start + _SCAN_S * place / len(planned)
        while (now := time.monotonic()) < due:
            if now - start >= len(sizes) * _SAMPLE_S:
                sizes.append(Size.of(warehouse, now - start, load.commits))
                print(sizes[-1], flush=True)
            assert not running.pipeline.wait(min(1.0, due - now)), running.status
            assert load.is_alive()
        read.append(arrow.to_table([task]))
    sizes.append(Size.of(warehouse, time.monotonic() - start, load.commits))
    return pa.concat_tables(read), sizes


def report(sizes: list[Size]) -> None:
    first, last = sizes[0], sizes[-1]
    print(last)
    if last.commits > first.commits:
        files = sum((last.data_files, last.metadata_files)) - sum((first.data_files, first.metadata_files))
        per_commit = files / (last.commits - first.commits)
        bytes_per_commit = (last.total_bytes - first.total_bytes) / (last.commits - first.commits)
        for hours in (1, 6):
            grown, size = per_commit * 3600 * hours, bytes_per_commit * 3600 * hours / 2**20
            print(f"extrapolated to {hours} h of a commit per second: {grown:.0f} files and {size:.0f} MiB more")
