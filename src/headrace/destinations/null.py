"""Reads everything and throws it away: for benchmarks and dry runs."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ..events import Relation, Truncate
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema, TableName
from .batch import Changes, EventBatch
from .contract import DestinationContext, Durability
from .rows import Rows

__all__ = ["NullCounts", "NullDestination"]


@dataclass(frozen=True, slots=True)
class NullCounts:
    """What came for a table. A batch that came again counts again: the work was done again."""

    copied_rows: int
    changes: int
    truncates: int


class NullDestination:
    """Decodes rows in the tasks, as a real destination would, and counts them.

    What was applied is remembered by the object only: with a new one a pipeline goes by its store.
    """

    name = "null"
    whole_batches = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._applied: dict[int, Lsn] = {}
        self._parts: defaultdict[int, set[int]] = defaultdict(set)
        self._counts: Counter[tuple[str, str]] = Counter()

    def counts(self, table: str | TableName) -> NullCounts:
        with self._lock:
            return NullCounts(*(self._counts[str(table), what] for what in ("copied", "changes", "truncates")))

    def startup(self, context: DestinationContext) -> None:
        pass

    def claim(self) -> None:
        """Nothing is written, so there is nothing to fence."""

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        with self._lock:
            return self._applied.get(schema.table.id)

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        with self._lock:
            return frozenset(self._parts[schema.table.id])

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        with self._lock:
            self._applied.pop(schema.table.id, None)
            self._parts.pop(schema.table.id, None)
            for what in ("copied", "changes", "truncates"):
                self._counts.pop((str(schema.table.name), what), None)

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self.drop_table_for_copy(schema)

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        self._add(schema, "copied", sum(rows.in_tasks(_count)))
        with self._lock:
            self._parts[schema.table.id].add(part)
        return Durability.DURABLE

    def follows(self, relation: Relation) -> bool:
        del relation
        return True

    def write_events(self, batch: EventBatch) -> Durability:
        for table in batch.tables:
            changes = [step for step in table.steps if isinstance(step, Changes)]
            self._add(table.schema, "changes", sum(sum(step.rows.in_tasks(_count)) for step in changes))
            self._add(table.schema, "truncates", sum(isinstance(step, Truncate) for step in table.steps))
            with self._lock:
                applied = self._applied.get(table.schema.table.id, batch.end)
                self._applied[table.schema.table.id] = max(applied, batch.end)
        return Durability.DURABLE

    def flush(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def _add(self, schema: ReplicatedTableSchema, what: str, count: int) -> None:
        with self._lock:
            self._counts[str(schema.table.name), what] += count


def _count(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)
