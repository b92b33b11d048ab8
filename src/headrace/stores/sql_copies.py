"""The statements of `sql.SqlStore` about copies. Each function runs in a transaction that is alone for the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..lsn import Lsn
from . import encoding
from .copies import require_begun
from .records import CopyRecord, CopyStart

__all__ = ["CopyOfTable"]

_OF_TABLE = "WHERE pipeline_id = ? AND table_id = ?"
_BEGIN = (
    "INSERT INTO @table_copy (pipeline_id, table_id, start_lsn, snapshot_lsn, one_snapshot, ranges) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_FINISH = (
    "INSERT INTO @copied_range (pipeline_id, table_id, position, bounds, snapshot, row_count) "
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (pipeline_id, table_id, position) DO UPDATE SET "
    "bounds = excluded.bounds, snapshot = excluded.snapshot, row_count = excluded.row_count"
)


@dataclass(frozen=True, slots=True)
class CopyOfTable:
    """What a database keeps of the copy of one table."""

    execute: Callable[..., list[tuple[Any, ...]]]
    lsn_parameter: Callable[[Lsn], str]
    lsn_result: Callable[[str], Lsn]
    pipeline_id: int
    table_id: int

    def begin(self, start: CopyStart) -> None:
        for table in ("table_copy", "copied_range"):
            self.execute(f"DELETE FROM @{table} {_OF_TABLE}", self.pipeline_id, self.table_id)
        self.execute(
            _BEGIN,
            self.pipeline_id,
            self.table_id,
            self.lsn_parameter(start.start_lsn),
            self.lsn_parameter(start.snapshot_lsn),
            start.one_snapshot,
            encoding.encode_ranges(start.ranges),
        )

    def get(self) -> tuple[CopyStart, list[CopyRecord]] | None:
        start = self._start()
        if start is None:
            return None
        rows = self.execute(
            "SELECT position, CAST(bounds AS TEXT), snapshot, row_count FROM @copied_range "
            f"{_OF_TABLE} ORDER BY position",
            self.pipeline_id,
            self.table_id,
        )
        finished = [
            CopyRecord(position, encoding.decode_bounds(bounds), snapshot, count)
            for position, bounds, snapshot, count in rows
        ]
        return start, finished

    def finish(self, record: CopyRecord) -> None:
        require_begun(self.table_id, self._snapshot_lsn() is not None)
        bounds = encoding.encode_bounds(record.bounds)
        what = (record.position, bounds, record.snapshot, record.rows)
        self.execute(_FINISH, self.pipeline_id, self.table_id, *what)

    def raise_lsn(self, snapshot_lsn: Lsn) -> Lsn:
        stored = self._snapshot_lsn()
        require_begun(self.table_id, stored is not None)
        assert stored is not None
        if snapshot_lsn <= stored:
            return stored
        raised = f"UPDATE @table_copy SET snapshot_lsn = ? {_OF_TABLE}"
        self.execute(raised, self.lsn_parameter(snapshot_lsn), self.pipeline_id, self.table_id)
        return snapshot_lsn

    def _snapshot_lsn(self) -> Lsn | None:
        rows = self.execute(f"SELECT snapshot_lsn FROM @table_copy {_OF_TABLE}", self.pipeline_id, self.table_id)
        return self.lsn_result(rows[0][0]) if rows else None

    def _start(self) -> CopyStart | None:
        rows = self.execute(
            f"SELECT start_lsn, snapshot_lsn, one_snapshot, CAST(ranges AS TEXT) FROM @table_copy {_OF_TABLE}",
            self.pipeline_id,
            self.table_id,
        )
        if not rows:
            return None
        start, snapshot, one_snapshot, ranges = rows[0]
        return CopyStart(
            self.lsn_result(start), self.lsn_result(snapshot), bool(one_snapshot), encoding.decode_ranges(ranges)
        )
