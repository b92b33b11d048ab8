"""A destination that fails when told to: one table for a while, one method once."""

from __future__ import annotations

from collections.abc import Callable

from ..destinations.batch import EventBatch
from ..destinations.contract import Destination, DestinationContext, Durability
from ..destinations.rows import Rows
from ..events import Relation
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema

__all__ = ["Fail", "FaultyDestination"]

Fail = Callable[[str, "str | None"], None]
"""Called with a method of the contract and a table's name, or None; raises what the destination is to raise."""


class FaultyDestination:
    """Asks `fail` before each call, for a batch of several tables once per table; then the one inside is called."""

    def __init__(self, inner: Destination, fail: Fail) -> None:
        self.name = inner.name
        self.whole_batches = inner.whole_batches
        self._inner = inner
        self._fail = fail

    def startup(self, context: DestinationContext) -> None:
        self._fail("startup", None)
        self._inner.startup(context)

    def claim(self) -> None:
        self._fail("claim", None)
        self._inner.claim()

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        self._fail("applied_lsn", str(schema.table.name))
        return self._inner.applied_lsn(schema)

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        self._fail("copied_parts", str(schema.table.name))
        return self._inner.copied_parts(schema)

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        self._fail("drop_table_for_copy", str(schema.table.name))
        self._inner.drop_table_for_copy(schema)

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self._fail("drop_table", str(schema.table.name))
        self._inner.drop_table(schema)

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        self._fail("write_table_rows", str(schema.table.name))
        return self._inner.write_table_rows(schema, rows, part)

    def follows(self, relation: Relation) -> bool:
        self._fail("follows", str(relation.new.table.name))
        return self._inner.follows(relation)

    def write_events(self, batch: EventBatch) -> Durability:
        for part in batch.tables:
            self._fail("write_events", str(part.schema.table.name))
        return self._inner.write_events(batch)

    def flush(self) -> None:
        self._fail("flush", None)
        self._inner.flush()

    def shutdown(self) -> None:
        self._fail("shutdown", None)
        self._inner.shutdown()
