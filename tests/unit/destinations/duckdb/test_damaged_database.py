"""A DuckDB file with flipped bits or cut short: DuckDB's checksums find it, and the error says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from damaging import damaged
from duckdb_reading import DuckDBFile, duckdb_settings
from headrace.destinations.contract import DestinationContext, SourceIdentity
from headrace.destinations.duckdb import DuckDBDestination
from headrace.errors import DestinationError, RetryPolicy
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS
from headrace.testing.local_rows import Inserted, batch_of, local_rows, transaction

CONTEXT = DestinationContext(1, MemoryStore(), None, source=SourceIdentity("7300", "shop"), run_id="r1")


def opened(path: Path) -> DuckDBDestination:
    destination = DuckDBDestination(duckdb_settings(path))
    destination.startup(CONTEXT)
    destination.claim()
    return destination


def order(key: int) -> dict[str, object]:
    return {"id": key, "name": f"name {key}", "note": None}


def everything(path: Path) -> tuple[Lsn | None, Any]:
    """What a pipeline finds when it starts, and what a reader does, who gets DuckDB's own error."""
    destination = opened(path)
    try:
        applied = destination.applied_lsn(ORDERS)
    finally:
        destination.shutdown()
    try:
        return applied, DuckDBFile(path).rows("public.orders")
    except duckdb.Error:
        return applied, None


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_damaged_files(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "shop.duckdb"
    destination = opened(path)
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [order(key) for key in range(2000)]), 0)
    destination.write_events(batch_of(transaction(Lsn(100), Inserted(ORDERS, order(2000))), end=Lsn(110)))
    destination.shutdown()
    content, whole = path.read_bytes(), everything(path)
    assert (whole[0], len(whole[1])) == (110, 2001)
    refused = 0
    for what, damage in damaged(content, seed, 12, 4):
        path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
        path.write_bytes(damage)
        error: DestinationError | None = None
        try:
            found = everything(path)
        except DestinationError as caught:
            error, refused = caught, refused + 1
        if error is None:
            # An empty file is a database that has yet to be made.
            assert found in (whole, (whole[0], None)) or not damage, what
        else:
            assert str(path) in str(error), what
            assert error.retry is RetryPolicy.MANUAL, what
    assert refused
