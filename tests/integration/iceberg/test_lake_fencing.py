"""Two runs of one pipeline at the same tables: whatever the first one still does, each change is there once, and the
recorded position never goes back. Iceberg and Delta.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from commit_faults import MAINTENANCE
from delta_tables import delta_settings, read_delta
from headrace.destinations.contract import DestinationContext, SourceIdentity
from headrace.destinations.delta import DeltaDestination
from headrace.destinations.delta.table import DeltaTable
from headrace.destinations.iceberg import IcebergDestination
from headrace.destinations.iceberg.table import IcebergTable
from headrace.destinations.lake.destination import LakeDestination
from headrace.errors import DestinationError, DestinationFenced, DestinationRejected
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import Happening, Inserted, LocalRows, Truncated, batch_of, local_rows, transaction
from lakehouse import iceberg_settings, lake, read_table

ORDERS = example_table(1, "orders", {"id": "int8", "note": "text"}, ("id",))
SOURCE = SourceIdentity("7000000000000000001", "shop")


class Run:
    """A run of the pipeline: its destination, open and claimed."""

    def __init__(self, destination: LakeDestination, source: SourceIdentity = SOURCE) -> None:
        self.destination = destination
        destination.startup(DestinationContext(1, MemoryStore(), self.spark, (ORDERS,), source=source))
        destination.claim()

    spark: Any = None

    def copy(self, part: int, *keys: int, rows: type[LocalRows] | None = None) -> None:
        given = local_rows(ORDERS, [{"id": key, "note": "copied"} for key in keys], spark=self.spark)
        self.destination.write_table_rows(ORDERS, given if rows is None else rows(given.table), part)

    def write(self, start: int, end: int, *happened: Happening) -> None:
        moments = transaction(Lsn(end - 10), *happened)
        self.destination.write_events(batch_of(moments, start=Lsn(start), end=Lsn(end), spark=self.spark))

    def insert(self, start: int, end: int, *keys: int) -> None:
        self.write(start, end, *(Inserted(ORDERS, {"id": key, "note": "streamed"}) for key in keys))

    @property
    def epoch(self) -> int:
        return self.destination._opened.fence.epoch

    @property
    def position(self) -> Lsn | None:
        return self.destination.applied_lsn(ORDERS)


class Site:
    """Starts runs, reads the table without them."""

    def __init__(self, kind: str, warehouse: Path, stack: ExitStack) -> None:
        self.kind, self.warehouse, self._stack = kind, warehouse, stack
        self.table: type[Any] = IcebergTable if kind == "iceberg" else DeltaTable

    def run(self, source: SourceIdentity = SOURCE) -> Run:
        if self.kind == "iceberg":
            destination: LakeDestination = IcebergDestination(iceberg_settings(self.warehouse, maintenance=MAINTENANCE))
        else:
            destination = DeltaDestination(delta_settings(self.warehouse, maintenance=MAINTENANCE))
        self._stack.callback(destination.shutdown)
        return Run(destination, source)

    def keys(self) -> list[int]:
        read = read_table if self.kind == "iceberg" else read_delta
        names = ("public.orders",) if self.kind == "iceberg" else ("public", "orders")
        return sorted(read(self.warehouse, *names).column("id").to_pylist())

    def drop_record(self) -> None:
        """Drop the table that hands out epochs, as the error about another source advises."""
        if self.kind == "delta":
            shutil.rmtree(self.warehouse / "headrace" / "pipeline_1")
            return
        catalog = lake(self.warehouse)
        catalog.drop_table("headrace.pipeline_1")
        catalog.close()

    def directory(self) -> Path:
        return self.warehouse / "public" / "orders" / ("data" if self.kind == "iceberg" else "")


@pytest.fixture(params=["iceberg", "delta"])
def site(request: pytest.FixtureRequest, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(Run, "spark", spark)
    with ExitStack() as stack:
        yield Site(request.param, tmp_path, stack)


@pytest.fixture
def paused(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have the next commit of a run wait while something else happens."""

    def arrange(happens: Callable[[], object]) -> None:
        plain, due = site.table.commit, [happens]

        def commit(table: Any, *given: Any) -> None:
            if due:
                due.pop()()
            plain(table, *given)

        monkeypatch.setattr(site.table, "commit", commit)

    return arrange


def test_a_paused_run_and_its_successor(site: Site, paused: Callable[[Callable[[], object]], None]) -> None:
    first = site.run()
    first.copy(0, 1, 2)

    def succeed() -> None:
        second = site.run()
        second.insert(50, 200, 10, 11)
        second.insert(200, 300, 12)

    paused(succeed)
    with pytest.raises(DestinationFenced, match="another run of pipeline 1 has taken over table"):
        first.insert(50, 150, 10)
    assert site.keys() == [1, 2, 10, 11, 12]
    second = site.run()
    assert second.position == Lsn(300)
    second.insert(300, 400, 13)
    assert site.keys() == [1, 2, 10, 11, 12, 13]
    with pytest.raises(DestinationFenced):
        first.insert(300, 400, 13)


def test_a_truncate_that_comes_too_late(site: Site, paused: Callable[[Callable[[], object]], None]) -> None:
    first = site.run()
    first.copy(0, 1)

    def succeed() -> None:
        second = site.run()
        second.write(50, 200, Truncated((ORDERS,)))
        second.insert(200, 300, 20)

    paused(succeed)
    with pytest.raises(DestinationFenced):
        first.write(50, 200, Truncated((ORDERS,)))
    assert site.keys() == [20]


def test_a_part_of_a_copy_that_comes_too_late(site: Site, paused: Callable[[Callable[[], object]], None]) -> None:
    first = site.run()
    first.copy(0, 1)

    def succeed() -> None:
        second = site.run()
        second.copy(1, 2)
        second.insert(50, 200, 3)

    paused(succeed)
    with pytest.raises(DestinationFenced):
        first.copy(1, 2)
    assert site.keys() == [1, 2, 3]
    # Nor does it begin a new copy, or drop the table.
    for late in (first.destination.drop_table_for_copy, first.destination.drop_table):
        with pytest.raises(DestinationFenced):
            late(ORDERS)
    assert site.run().position == Lsn(200)
    assert site.keys() == [1, 2, 3]


def test_what_the_run_before_has_committed_is_not_applied_again(
    site: Site, paused: Callable[[Callable[[], object]], None]
) -> None:
    """The first run commits right after the second one has claimed the pipeline, and before that has written."""
    first = site.run()
    first.copy(0, 1)
    runs: list[Run] = []
    paused(lambda: runs.append(site.run()))
    first.insert(50, 150, 10)
    (second,) = runs
    with pytest.raises(DestinationError, match="another run has written to table"):
        second.insert(50, 200, 10, 11)
    assert second.position == Lsn(150)
    second.insert(150, 200, 11)
    assert site.keys() == [1, 10, 11]


def test_files_of_other_runs(site: Site) -> None:
    """A run removes what its predecessors left, and spares what a successor is about to commit."""
    first = site.run()
    first.copy(0, 1)
    second = site.run()
    second.insert(50, 100, 2)
    epochs = (first.epoch, second.epoch + 1)
    left, coming = (site.directory() / f"headrace-1-e{epoch}x0123456789ab-left.parquet" for epoch in epochs)
    unknown = site.directory() / "headrace-1-0123456789ab-of-an-older-version.parquet"
    for path in (left, coming, unknown):
        path.write_bytes(b"PAR1")
    # As those of a copy that takes for days.
    os.utime(coming, (0, 0))
    second.destination.maintain(ORDERS.table.name)
    assert [path.exists() for path in (left, coming, unknown)] == [False, True, True]
    assert site.keys() == [1, 2]


def test_a_dropped_record(site: Site) -> None:
    """The next run is above all earlier ones, whose epochs the tables still have."""
    for part in range(3):
        site.run().copy(part, part)
    site.drop_record()
    last = site.run()
    last.insert(50, 100, 3)
    assert site.keys() == [0, 1, 2, 3]


def test_files_of_a_paused_run_that_may_still_commit(
    site: Site, paused: Callable[[Callable[[], object]], None]
) -> None:
    """A successor that has not written to the table yet looks for orphans while the first run is about to commit."""
    first = site.run()
    first.copy(0, 1)
    found: list[set[Path]] = []

    def look_for_orphans() -> None:
        second = site.run()
        second.destination.maintain(ORDERS.table.name)
        found.append({path for path in site.directory().rglob(f"headrace-1-e{first.epoch}x*") if path.is_file()})

    paused(look_for_orphans)
    first.insert(50, 150, 10)
    # Its files of before and of the commit under way were there, and the table can be read.
    assert len(found[0]) >= 2
    assert site.keys() == [1, 10]
    assert all(path.exists() for path in found[0])


def test_a_pipeline_of_another_source(site: Site) -> None:
    site.run().copy(0, 1)
    with pytest.raises(DestinationRejected, match="belongs to database shop of system 7000000000000000001, not to"):
        site.run(SourceIdentity("7000000000000000002", "shop"))
    assert site.keys() == [1]
