"""What the wrappers share: a destination each of whose calls passes through one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ..events import Relation
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema, TableName
from .batch import EventBatch
from .contract import Destination, DestinationContext, Durability
from .rows import Rows

__all__ = ["Around", "Surround"]

_Result = TypeVar("_Result")


class Surround(Protocol):
    """Makes the call, or does not, or makes it again."""

    def __call__(self, method: str, table: TableName | None, call: Callable[[], _Result]) -> _Result:
        """`method` is the contract's word; `table` is None where a call is for none, or for several."""


class Around:
    """A destination that makes its calls through `surround`, and is otherwise the one inside."""

    def __init__(self, destination: Destination, surround: Surround) -> None:
        self.name = destination.name
        self.whole_batches = destination.whole_batches
        self._inner = destination
        self._surround = surround

    def startup(self, context: DestinationContext) -> None:
        self._surround("startup", None, lambda: self._inner.startup(context))

    def claim(self) -> None:
        self._surround("claim", None, self._inner.claim)

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        return self._surround("applied_lsn", schema.table.name, lambda: self._inner.applied_lsn(schema))

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        return self._surround("copied_parts", schema.table.name, lambda: self._inner.copied_parts(schema))

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        self._surround("drop_table_for_copy", schema.table.name, lambda: self._inner.drop_table_for_copy(schema))

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self._surround("drop_table", schema.table.name, lambda: self._inner.drop_table(schema))

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        return self._surround(
            "write_table_rows", schema.table.name, lambda: self._inner.write_table_rows(schema, rows, part)
        )

    def follows(self, relation: Relation) -> bool:
        return self._surround("follows", relation.new.table.name, lambda: self._inner.follows(relation))

    def write_events(self, batch: EventBatch) -> Durability:
        table = batch.tables[0].schema.table.name if len(batch.tables) == 1 else None
        return self._surround("write_events", table, lambda: self._inner.write_events(batch))

    def flush(self) -> None:
        self._surround("flush", None, self._inner.flush)

    def shutdown(self) -> None:
        self._surround("shutdown", None, self._inner.shutdown)
