"""The quarantine table: values that no type of the table holds, as Postgres sent them. Written with their rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...schema import OWN_SCHEMA, ReplicatedTableSchema
from ..rows import REJECTED_FIELDS, Rows
from .columns import definitions, quoted
from .database import Session

__all__ = ["Quarantine", "rejections"]

_SOURCE_FIELDS = (pa.field("table_id", pa.int64()), pa.field("table_name", pa.string()))
_VALUES = "_headrace_values"


def rejections(rows: Sequence[Rows]) -> pa.Table | None:
    """What was rejected of rows that were read just now; None: nothing."""
    found = [rejected for one in rows if (rejected := one.rejected()) is not None]
    batches = [batch for rejected in found for batch in rejected.batches()]
    return pa.Table.from_batches(batches, REJECTED_FIELDS) if batches else None


class Quarantine:
    """One table for all of a pipeline. All methods are for within a transaction."""

    def __init__(self, pipeline_id: int, database: str) -> None:
        self._table = quoted(database, OWN_SCHEMA, f"quarantine_{pipeline_id}")

    def open(self, session: Session) -> None:
        session.run(
            f"CREATE TABLE IF NOT EXISTS {self._table} ({definitions(pa.schema([*_SOURCE_FIELDS, *REJECTED_FIELDS]))})"
        )

    def add(self, session: Session, source: ReplicatedTableSchema, values: pa.Table | None) -> None:
        if values is not None:
            with session.given(_VALUES, values):
                session.run(
                    f"INSERT INTO {self._table} SELECT ?, ?, * FROM {_VALUES}",
                    [source.table.id, str(source.table.name)],
                )

    def forget(self, session: Session, table_id: int) -> None:
        """Remove what is known of a source table, because it is copied anew."""
        session.run(f"DELETE FROM {self._table} WHERE table_id = ?", [table_id])
