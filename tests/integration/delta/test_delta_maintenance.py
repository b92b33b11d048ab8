"""Maintenance of Delta tables: small files are merged beside the stream, and what nobody names goes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from delta_tables import delta_settings, read_delta, table_directory
from headrace.destinations.contract import DestinationContext
from headrace.destinations.delta import DeltaDestination, maintenance
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import Deleted, Happening, Inserted, Updated, batch_of, local_rows, transaction

ORDERS = example_table(1, "orders", {"id": "int8", "note": "text"}, ("id",))
EAGER = {"enabled": False, "small_files": 2, "retention_s": 0}


@pytest.fixture
def destination(tmp_path: Path, spark: Any) -> Iterator[DeltaDestination]:
    opened = DeltaDestination(delta_settings(tmp_path, maintenance=EAGER))
    opened.startup(DestinationContext(1, MemoryStore(), spark, (ORDERS,)))
    opened.claim()
    yield opened
    opened.shutdown()


def write(destination: DeltaDestination, end: int, *happened: Happening) -> None:
    destination.write_events(batch_of(transaction(Lsn(end - 10), *happened), end=Lsn(end)))


def filled(destination: DeltaDestination, batches: int = 5) -> dict[int, str]:
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [{"id": n, "note": "first"} for n in range(20)]), 0)
    rows = dict.fromkeys(range(20), "first")
    for number in range(1, batches):
        write(
            destination,
            number * 100,
            *(Updated(ORDERS, {"id": n, "note": f"b{number}"}) for n in range(number, 20, 7)),
            Inserted(ORDERS, {"id": 100 + number, "note": "new"}),
        )
        rows |= dict.fromkeys(range(number, 20, 7), f"b{number}") | {100 + number: "new"}
    return rows


def found(warehouse: Path) -> dict[int, str]:
    rows = read_delta(warehouse, "public", "orders").to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["note"] for row in rows}


def data_files(warehouse: Path) -> set[Path]:
    return set(table_directory(warehouse, "public", "orders").glob("*.parquet"))


def test_small_files_are_merged_and_old_ones_removed(destination: DeltaDestination, tmp_path: Path) -> None:
    rows = filled(destination)
    assert len(data_files(tmp_path)) == 5
    destination.maintain(ORDERS.table.name)
    assert found(tmp_path) == rows
    assert len(data_files(tmp_path)) == 1
    assert not list(table_directory(tmp_path, "public", "orders").rglob("deletion_vector*.bin"))
    write(destination, 900, Deleted(ORDERS, {"id": 101}), Updated(ORDERS, {"id": 1, "note": "last"}))
    del rows[101]
    assert found(tmp_path) == rows | {1: "last"}
    assert destination.applied_lsn(ORDERS) == Lsn(900)


def test_what_the_stream_deletes_meanwhile_stays_deleted(
    destination: DeltaDestination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that is merged rows go, and of another all of them: the new file has neither."""
    rows = filled(destination)
    write_data: Callable[..., Any] = maintenance.write_data

    def meanwhile(*given: Any) -> Any:
        written = write_data(*given)
        monkeypatch.undo()
        write(
            destination,
            900,
            *(Deleted(ORDERS, {"id": n}) for n in (0, 5, 101, 102)),
            *(Updated(ORDERS, {"id": n, "note": "late"}) for n in (1, 2, 9, 16)),
        )
        return written

    monkeypatch.setattr(maintenance, "write_data", meanwhile)
    destination.maintain(ORDERS.table.name)
    late = {n: note for n, note in rows.items() if n not in (0, 5, 101, 102)} | dict.fromkeys((1, 2, 9, 16), "late")
    assert found(tmp_path) == late
    # The merged file, and that of the batch which came meanwhile.
    assert len(data_files(tmp_path)) == 2


def test_files_that_left_the_table_stay_for_readers(tmp_path: Path, spark: Any) -> None:
    """However old they are, and also when another run of the pipeline searches."""

    def run() -> DeltaDestination:
        opened = DeltaDestination(delta_settings(tmp_path, maintenance={"enabled": False, "small_files": 2}))
        opened.startup(DestinationContext(1, MemoryStore(), spark, (ORDERS,)))
        opened.claim()
        return opened

    def files() -> set[Path]:
        place = table_directory(tmp_path, "public", "orders")
        return {*place.glob("*.parquet"), *place.rglob("deletion_vector*.bin")}

    destination = run()
    rows, before = filled(destination), files()
    assert any(path.suffix == ".bin" for path in before)
    for path in before:
        os.utime(path, (0, 0))
    destination.maintain(ORDERS.table.name)
    destination.shutdown()
    destination = run()
    assert destination.applied_lsn(ORDERS) == Lsn(400)
    destination.maintain(ORDERS.table.name)
    destination.shutdown()
    assert before < files()
    assert found(tmp_path) == rows


def test_what_an_earlier_run_left_is_removed(destination: DeltaDestination, tmp_path: Path, spark: Any) -> None:
    rows = filled(destination, 2)
    place = table_directory(tmp_path, "public", "orders")
    (place / "headrace-1-e1x0123456789ab-lost.parquet").write_bytes(b"PAR1")
    (place / "headrace-1-e1x0123456789ab").mkdir()
    (place / "headrace-1-e1x0123456789ab/deletion_vector_lost.bin").write_bytes(b"\x01")
    (place / "headrace-2-e1x0123456789ab-other.parquet").write_bytes(b"PAR1")
    destination.shutdown()
    # Two days: nothing but what earlier runs left goes.
    again = DeltaDestination(delta_settings(tmp_path))
    again.startup(DestinationContext(1, MemoryStore(), spark, (ORDERS,)))
    again.claim()
    assert again.applied_lsn(ORDERS) == Lsn(100)
    again.maintain(ORDERS.table.name)
    again.shutdown()
    assert found(tmp_path) == rows
    assert [path.name for path in place.glob("headrace-1-e1x0123456789ab*/*")] == []
    assert [path.name for path in place.glob("headrace-1-e1x0123456789ab-*")] == []
    assert (place / "headrace-2-e1x0123456789ab-other.parquet").exists()
    assert len(list(place.glob("headrace-1-*.parquet"))) > 1


def test_a_damaged_list_of_files_removes_none(destination: DeltaDestination, tmp_path: Path, spark: Any) -> None:
    """The checksum file of a version names all files of a small table, and nothing protects it from damage."""
    rows = filled(destination)
    destination.shutdown()
    log, files = table_directory(tmp_path, "public", "orders") / "_delta_log", data_files(tmp_path)
    newest = max(log.glob("0*.crc"))
    content = newest.read_text()
    named = sorted(path.name for path in files if path.name in content)
    newest.write_text(content.replace(named[0], named[0][:-9] + chr(ord(named[0][-9]) ^ 1) + named[0][-8:]))
    assert newest.read_text() != content
    again = DeltaDestination(delta_settings(tmp_path, maintenance=EAGER))
    again.startup(DestinationContext(1, MemoryStore(), spark, (ORDERS,)))
    again.claim()
    assert again.applied_lsn(ORDERS) == Lsn(400)
    with structlog.testing.capture_logs() as logs:
        again._opened.maintenance.look()
    again.shutdown()
    assert data_files(tmp_path) == files
    (failed,) = [entry for entry in logs if entry.get("step") == "orphans"]
    assert "the listing of table public.orders lacks 1 files that are in use" in failed["detail"][0]
    assert found(tmp_path) == rows
