"""Files of a Parquet log that are damaged: what is read is what was written, or an error that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from damaging import damaged
from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import DestinationContext, SourceIdentity
from headrace.destinations.parquet import ParquetDestination, open_log
from headrace.destinations.parquet.layout import ManifestKind
from headrace.destinations.parquet.manifest import StoredRows
from headrace.destinations.parquet.reader import LoggedTable, read_changes, read_copied
from headrace.errors import DestinationError, RetryPolicy
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS
from headrace.testing.local_rows import Inserted, batch_of, local_rows, transaction

CONTEXT = DestinationContext(1, MemoryStore(), None, source=SourceIdentity("7300", "shop"), run_id="r1")
FILES = {
    "owner": "headrace.json",
    "epoch": "epochs/*.json",
    "manifest of a copy": "*/manifests/*-copy-*.json",
    "manifest of changes": "*/manifests/*-changes-*.json",
    "copied rows": "*/generation=1/copy/*.parquet",
    "changes": "*/generation=1/changes/*/*.parquet",
}


def order(key: int) -> dict[str, object]:
    return {"id": key, "name": f"name {key}", "note": None}


def opened(location: Path) -> ParquetDestination:
    destination = ParquetDestination(ParquetConfig(location=str(location)))
    destination.startup(CONTEXT)
    destination.claim()
    return destination


def written(location: Path) -> None:
    destination = opened(location)
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(key) for key in range(20)]), 0)
    inserted = [Inserted(ORDERS, order(key)) for key in range(20, 30)]
    destination.write_events(batch_of(transaction(Lsn(100), *inserted), end=Lsn(110)))
    destination.shutdown()


def everything(location: Path) -> list[Any]:
    """Claim the log as a pipeline does when it starts, and read all of it."""
    destination = opened(location)
    destination.shutdown()
    newest = max(location.glob("epochs/*.json"))
    newest.unlink()
    return [newest.name, *(row for table in open_log(str(location)).tables() for row in _rows(table))]


def _rows(table: LoggedTable) -> list[Any]:
    rows: list[Any] = []
    for manifest in table.manifests():
        read = read_copied if manifest.name.kind is ManifestKind.COPY else read_changes
        for step in manifest.steps:
            assert isinstance(step, StoredRows)
            for file in step.files:
                rows += [row for batch in read(table.storage, file, step.schema) for row in batch.to_pylist()]
    return rows


@pytest.mark.parametrize("pattern", FILES.values(), ids=FILES)
def test_damaged_files(tmp_path: Path, pattern: str) -> None:
    written(tmp_path)
    whole = everything(tmp_path)
    assert len(whole) == 31
    (path,) = tmp_path.glob(pattern)
    content, refused = path.read_bytes(), 0
    for what, damage in damaged(content, 1, 30, 5):
        path.write_bytes(damage)
        error: DestinationError | None = None
        try:
            found = everything(tmp_path)
        except DestinationError as caught:
            error, refused = caught, refused + 1
        if error is None:
            assert found == whole, what
        else:
            assert path.name in str(error), what
            assert error.retry is RetryPolicy.MANUAL, what
    assert refused
