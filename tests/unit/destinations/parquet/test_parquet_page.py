"""The page about the log: its code reads a log that is there."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from docs_blocks import blocks, run
from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.parquet import ParquetDestination
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.testing.example_tables import ORDERS
from headrace.testing.local_rows import Deleted, Inserted, batch_of, local_rows, transaction

PAGE = "docs/destinations/parquet.md"


def test_the_page_reads_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    destination = ParquetDestination(ParquetConfig(location="./changes"))
    destination.startup(DestinationContext(1, MemoryStore(), None))
    destination.claim()
    for key in (1, 2):
        row = {"id": key, "name": "a", "note": None}
        destination.write_table_rows(ORDERS, local_rows(ORDERS, [row]), 0)
        happened = (Inserted(ORDERS, {**row, "id": 3}), Deleted(ORDERS, {"id": key}))
        destination.write_events(batch_of(transaction(Lsn(100), *happened), end=Lsn(200)))
        if key == 1:
            # Only what follows counts.
            destination.drop_table_for_copy(ORDERS)
    (python,) = blocks(PAGE, "python")
    changes = run(python, {})["changes"].to_pylist()
    assert [(change["op"], change["row"] and change["row"]["id"]) for change in changes] == [
        ("R", 2),
        ("I", 3),
        ("D", None),
    ]
    (sql,) = blocks(PAGE, "sql")
    with duckdb.connect() as connection:
        for statement in filter(str.strip, sql.split(";")):
            connection.execute(statement)
        assert [row[:2] for row in connection.fetchall()] == [("R", 2), ("I", 3), ("D", None)]
