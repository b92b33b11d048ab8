"""Rows that tasks put down for DuckDB."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.destinations.duckdb import staging as staging_module
from headrace.destinations.duckdb.staging import Staging, pieces
from headrace.testing.local_rows import LocalRows

MIB = 1 << 20


def test_a_large_batch_is_read_in_parts(tmp_path: Path) -> None:
    """The folded changes of a table are one batch, however many."""
    table = pa.table({"id": range(64), "text": ["x" * (MIB // 4)] * 64})
    staging = Staging(str(tmp_path), "here", 1, shared=False)
    staging.open()
    (staged,) = staging.put(LocalRows(table), table.schema)
    assert staged.path is not None
    read = list(staged.reader())
    assert max(batch.nbytes for batch in read) < 5 * MIB
    assert pa.Table.from_batches(read) == table
    assert sum(len(piece.read_all()) for piece in pieces([staged])) == 64
    staging.close()


def test_a_full_disk_is_named_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt needs the space."""
    table = pa.table({"id": range(64), "text": ["x" * (MIB // 4)] * 64})
    staging = Staging(str(tmp_path), "here", 1, shared=False)
    staging.open()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    monkeypatch.setattr(staging_module, "_write", full)
    with pytest.raises(OSError, match="Error writing bytes") as caught:
        staging.put(LocalRows(table), table.schema)
    assert str(caught.value.filename).startswith(str(tmp_path))
    assert list(tmp_path.rglob("*.arrow")) == []
    staging.close()


def test_few_rows_are_handed_over_in_memory(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2]})
    staging = Staging(str(tmp_path), "here", 1, shared=False)
    staging.open()
    (staged,) = staging.put(LocalRows(table), table.schema)
    assert (staged.path, staged.rows) == (None, 2)
    staging.close()
