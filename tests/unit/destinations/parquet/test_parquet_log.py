"""A log's files: which count, where they lie, what is removed, and what others read of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.parquet import ParquetDestination, open_log
from headrace.destinations.parquet.layout import ManifestKind, ManifestName, new_directory, table_id_of
from headrace.destinations.parquet.storage import Storage
from headrace.errors import ConfigError, DestinationFenced, TableNotFound
from headrace.events import Event
from headrace.lsn import Lsn
from headrace.schema import TableName
from headrace.stores import MemoryStore
from headrace.testing.destination_suite.broken_rows import BrokenRows, Unreadable
from headrace.testing.example_tables import ORDERS, example_table
from headrace.testing.local_rows import (
    COMMIT_TIME,
    Altered,
    Deleted,
    Inserted,
    LocalRows,
    Updated,
    batch_of,
    batch_per_table,
    local_rows,
    transaction,
)

CONTEXT = DestinationContext(1, MemoryStore(), None)


def opened(location: Path, **settings: Any) -> ParquetDestination:
    destination = ParquetDestination(ParquetConfig(location=str(location), **settings))
    destination.startup(CONTEXT)
    destination.claim()
    return destination


def order(key: int, name: str = "a") -> dict[str, object]:
    return {"id": key, "name": name, "note": None}


def copy(destination: ParquetDestination, *keys: int, part: int = 0) -> None:
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(key) for key in keys]), part)


def change(destination: ParquetDestination, lsn: int, *happened: Any, time: datetime = COMMIT_TIME) -> None:
    events = [_at(event, time) for event in transaction(Lsn(lsn), *happened)]
    for part in batch_per_table(batch_of(events, end=Lsn(lsn + 10))):
        destination.write_events(part)


def _at(event: Event, time: datetime) -> Event:
    return replace(event, commit_time=time) if hasattr(event, "commit_time") else event


def data_files(location: Path) -> list[str]:
    return sorted(str(path.relative_to(location)) for path in location.rglob("*.parquet"))


def rows_of(files: Sequence[str]) -> list[tuple[str, int | None]]:
    tables = [pq.ParquetFile(file).read() for file in files]
    return [(row["op"], (row["row"] or row["old"])["id"]) for table in tables for row in table.to_pylist()]


def test_a_change_is_in_one_file_that_a_manifest_names(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    copy(destination, 1, 2)
    change(destination, 100, Inserted(ORDERS, order(3)), Deleted(ORDERS, {"id": 1}))
    table = open_log(str(tmp_path)).table("public.orders")
    assert rows_of(table.files()) == [("R", 1), ("R", 2), ("I", 3), ("D", 1)]
    assert sorted(table.files()) == [str(tmp_path / file) for file in data_files(tmp_path)]
    manifests = sorted((tmp_path / table.directory / "manifests").iterdir())
    told = json.loads(manifests[1].read_text())
    assert (told["start"], told["end"], told["kind"], told["table"]) == ("0/0", "0/6E", "changes", "public.orders")
    (file,) = told["files"]
    assert (file["rows"], file["first"], file["last"]) == (2, [100, 0], [100, 1])
    assert "/generation=1/changes/commit_date=2026-01-02/" in file["path"]
    assert [column["name"] for column in told["schemas"][told["schema"]]["columns"]] == ["id", "name", "note"]


def test_files_are_cut_where_the_day_changes_and_keep_the_order_of_commits(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    day, midnight = timedelta(days=1), datetime(2026, 3, 1, tzinfo=UTC)
    # The source's clock was set back in between.
    moments = [midnight - timedelta(seconds=1), midnight, midnight - timedelta(seconds=2), midnight + day]
    events = [
        _at(event, moment)
        for number, moment in enumerate(moments)
        for event in transaction(Lsn(100 + number), Inserted(ORDERS, order(number)))
    ]
    destination.write_events(batch_of(events, end=Lsn(200)))
    files = open_log(str(tmp_path)).table("public.orders").files()
    assert [Path(file).parent.name for file in files] == [
        "commit_date=2026-02-28", "commit_date=2026-03-01", "commit_date=2026-02-28", "commit_date=2026-03-02",
    ]  # fmt: skip
    assert rows_of(files) == [("I", number) for number in range(4)]


def test_others_read_it_by_its_manifests(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    copy(destination, 1)
    change(destination, 100, Updated(ORDERS, order(2), old={"id": 1}))
    (tmp_path / data_files(tmp_path)[0]).with_name("0000000009-ff-00.parquet").write_bytes(b"of a task that failed")
    files = open_log(str(tmp_path)).table("public.orders").files()
    assert ds.dataset(files).count_rows() == 2
    with duckdb.connect() as connection:
        connection.execute(
            "SET VARIABLE files = (SELECT list($1 || '/' || file.path) FROM (SELECT unnest(files) AS file "
            "FROM read_json($1 || '/public.orders.*/manifests/*.json')) WHERE file.content = 'rows')",
            [str(tmp_path)],
        )
        query = "SELECT op, row.id, old.id FROM read_parquet(getvariable('files')) ORDER BY commit_lsn NULLS FIRST"
        assert connection.execute(query).fetchall() == [("R", 1, None), ("U", 2, 1)]


def test_what_no_manifest_names_is_removed_at_the_start(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    copy(destination, 1)
    change(destination, 100, Inserted(ORDERS, order(2)))
    kept = data_files(tmp_path)
    directory, name = (tmp_path / kept[0]).parent, Path(kept[0]).name
    sequence, attempt, _ = name.split("-")
    # A task that ran twice, a batch that was cut off, and an attempt of one that was then written by another.
    for orphan in (f"{sequence}-{attempt}-00", "0000000003-aa-00", f"{sequence}-bb-00"):
        (directory / f"{orphan}.parquet").write_bytes(b"left behind")
    # A manifest that was not renamed to what it is to be.
    manifest = next(tmp_path.rglob("manifests/*.json"))
    staged = manifest.with_name(f".{manifest.name}.{uuid.uuid4().hex}")
    staged.write_bytes(b"left behind")
    again = opened(tmp_path)
    assert data_files(tmp_path) == kept
    assert manifest.exists()
    assert not staged.exists()
    assert again.applied_lsn(ORDERS) == 110
    assert again.copied_parts(ORDERS) == {0}


def test_an_attempt_that_fails_leaves_no_file(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    rows = BrokenRows(local_rows(ORDERS, [order(1)]).table)
    with pytest.raises(Unreadable):
        destination.write_table_rows(ORDERS, rows, 0)
    assert data_files(tmp_path) == []
    assert destination.copied_parts(ORDERS) == frozenset()


def test_a_location_has_one_pipeline(tmp_path: Path) -> None:
    opened(tmp_path)
    other = ParquetDestination(ParquetConfig(location=str(tmp_path)))
    with pytest.raises(ConfigError, match="belongs to pipeline 1"):
        other.startup(replace(CONTEXT, pipeline_id=2))


def test_a_new_copy_is_a_new_generation_once_it_has_rows(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    copy(destination, 1)
    change(destination, 100, Inserted(ORDERS, order(2)))
    for _ in range(2):
        destination.drop_table_for_copy(ORDERS)
    assert destination.applied_lsn(ORDERS) is None
    assert rows_of(open_log(str(tmp_path)).table("public.orders").files()) == [("R", 1), ("I", 2)]
    again = opened(tmp_path)
    assert (again.applied_lsn(ORDERS), again.copied_parts(ORDERS)) == (None, frozenset())
    copy(again, 7)
    table = open_log(str(tmp_path)).table("public.orders")
    assert (table.generation, rows_of(table.files())) == (2, [("R", 7)])


def test_a_table_that_left_is_gone_and_may_come_back(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    copy(destination, 1)
    destination.drop_table(ORDERS)
    assert data_files(tmp_path) == []
    with pytest.raises(TableNotFound):
        open_log(str(tmp_path)).table("public.orders")
    again = opened(tmp_path)
    assert again.copied_parts(ORDERS) == frozenset()
    copy(again, 2)
    assert rows_of(open_log(str(tmp_path)).table("public.orders").files()) == [("R", 2)]


def test_a_removal_that_was_cut_off_is_finished_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = opened(tmp_path)
    copy(destination, 1)

    def cut_off(*_: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "delete", cut_off)
        with pytest.raises(ConnectionError):
            destination.drop_table(ORDERS)
    assert data_files(tmp_path) != []
    opened(tmp_path)
    assert data_files(tmp_path) == []
    assert len(list(tmp_path.rglob("manifests/*"))) == 1


def test_a_renamed_table_keeps_its_place(tmp_path: Path) -> None:
    destination = opened(tmp_path)
    copy(destination, 1)
    renamed = replace(ORDERS, table=replace(ORDERS.table, name=TableName("shop", "sales")))
    change(destination, 100, Altered(ORDERS, renamed), Inserted(renamed, order(2)))
    table = open_log(str(tmp_path)).table("shop.sales")
    assert table.directory == f"public.orders.{ORDERS.table.id}"
    assert opened(tmp_path).applied_lsn(renamed) == 110


def test_a_copy_is_cut_into_files(tmp_path: Path) -> None:
    destination = opened(tmp_path, target_file_bytes=1 << 20, compression="none")
    wide = example_table(5, "wide", {"id": "int8", "text": "text"}, ("id",))
    rows = local_rows(wide, [{"id": number, "text": f"{number}" * 400} for number in range(2_500)])
    destination.write_table_rows(wide, _InOneTask(rows.table, part_rows=500), 0)
    files = open_log(str(tmp_path)).table("public.wide").files()
    assert len(files) > 1
    assert ds.dataset(files).count_rows() == 2_500


class _InOneTask(LocalRows):
    def in_tasks(self, write: Any) -> list[Any]:
        return [write(self.batches())]


def test_names_hold_what_a_restart_needs() -> None:
    name = ManifestName(3, 12, "ab12", ManifestKind.CHANGES, 0x1_0000_0064, 7)
    assert ManifestName.parse(str(name)) == name
    assert ManifestName.parse(f".{name}.tmp") is None
    odd = replace(ORDERS.table, name=TableName("a.b/c", "ü" * 80))
    directory = new_directory(odd)
    assert directory == f"a_b_c.{'_' * 60}.{ORDERS.table.id}"
    assert table_id_of(directory) == ORDERS.table.id
    assert table_id_of("lost+found") is None


def test_there_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no change log"):
        open_log(str(tmp_path / "elsewhere"))


def test_a_scheme_that_nobody_knows() -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        ParquetDestination(ParquetConfig(location="nosuch://x")).startup(CONTEXT)


def test_secrets_are_not_printed() -> None:
    assert "hush" not in repr(ParquetConfig(location="s3://x", storage_options={"secret": "hush"}))


def test_a_manifest_that_a_replaced_run_publishes_late_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run takes over between the last look at the epochs and the upload."""
    settings = ParquetConfig(location=str(tmp_path))
    first, second = ParquetDestination(settings), ParquetDestination(settings)
    first.startup(CONTEXT)
    first.claim()
    first.write_table_rows(ORDERS, local_rows(ORDERS, [{"id": 1, "name": "a", "note": None}]), 0)
    second.startup(CONTEXT)
    commit = ParquetDestination._commit

    def late(destination: ParquetDestination, path: str, content: bytes) -> None:
        if destination is first:
            second.claim()
        commit(destination, path, content)

    monkeypatch.setattr(ParquetDestination, "_commit", late)
    row = {"id": 2, "name": "b", "note": None}
    batch = batch_of(transaction(Lsn(100), Inserted(ORDERS, row)), end=Lsn(200))
    with pytest.raises(DestinationFenced, match="another run of pipeline 1"):
        first.write_events(batch)
    assert second.applied_lsn(ORDERS) is None
    table = open_log(str(tmp_path)).table("public.orders")
    assert [name.kind for name in table.names] == [ManifestKind.COPY]
    second.write_events(batch)
    assert second.applied_lsn(ORDERS) == Lsn(200)
    table = open_log(str(tmp_path)).table("public.orders")
    assert [name.kind for name in table.names] == [ManifestKind.COPY, ManifestKind.CHANGES]
    assert len(table.files()) == 2
    # Its files go when the next run begins.
    third = ParquetDestination(settings)
    third.startup(CONTEXT)
    third.claim()
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_of_two_runs_at_once_one_claims_the_log(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    assert storage.create("epochs/0000000001.json", b"{}")
    assert not storage.create("epochs/0000000001.json", b"{}")
    elsewhere = Storage("memory://claims")
    assert elsewhere.create("epochs/0000000001.json", b"{}")
    assert not elsewhere.create("epochs/0000000001.json", b"{}")
