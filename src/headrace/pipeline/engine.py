"""What the parts of a running pipeline share. Made by `build`; the parts know each other only through it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..config.pipeline import PipelineConfig
from ..destinations.batch import Changes, EventBatch, TableBatch
from ..destinations.contract import Destination, Durability
from ..lsn import INVALID_LSN, Lsn
from ..spark.part import PartReport
from ..spark.rows import LocalRows, TaskRows
from ..spool import Segment
from ..stores.contract import PipelineStore
from ..telemetry.metrics import Metrics
from .batches import BatchReader, TableRange
from .event_stream import read_events
from .memory import MemoryMonitor
from .reception import Reception
from .tables import Table, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Engine", "Stopped"]


class Stopped(Exception):
    """Work was given up because the pipeline stops. Nothing is lost by it."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One life of a pipeline."""

    config: PipelineConfig
    store: PipelineStore
    destination: Destination
    spark: SparkSession | Any
    tables: Tables
    batches: BatchReader
    reception: Reception
    memory: MemoryMonitor
    metrics: Metrics
    stopping: threading.Event

    @property
    def sync_tag(self) -> str:
        """The tag of jobs that a stop cancels at once: copies and catch-ups."""
        return f"headrace-{self.config.id}-sync"

    @property
    def write_tag(self) -> str:
        """The tag of the jobs of batches."""
        return f"headrace-{self.config.id}-write"

    def check_stop(self) -> None:
        if self.stopping.is_set():
            raise Stopped

    def table_range(self, table: Table, end: Lsn) -> TableRange:
        """What the table has not been given yet, before `end`."""
        handoff = table.handoff
        if handoff is not None and table.written >= handoff.until:
            handoff = None
        return TableRange(table.schema, table.written, end, handoff)

    def event_batch(
        self, parts: Iterable[tuple[TableRange, TableBatch]], end: Lsn, segments: list[Segment]
    ) -> EventBatch:
        listed = list(parts)
        ranges = [wanted for wanted, _ in listed]
        read = partial(read_events, self.batches, self.config.spool_config(), ranges, segments)
        return EventBatch(end, tuple(batch for _, batch in listed), read)

    def write(self, table: Table, end: Lsn, segments: list[Segment]) -> None:
        """Give the destination one table's changes before `end`; the table's `written` and `pending` tell the rest."""
        wanted = self.table_range(table, end)
        batch = self.batches.table_batch(wanted, segments)
        if batch.steps:
            durability = self.destination.write_events(self.event_batch([(wanted, batch)], end, segments))
            self.count(batch)
            table.pending = durability is Durability.ACCEPTED
        table.written = max(table.written, end)

    def ask_position(self, table: Table) -> None:
        """After a failed write: it may have been done all the same, and only its answer was lost."""
        applied = self.destination.applied_lsn(table.schema)
        if applied is not None and applied > table.position:
            table.position = table.written = applied

    def count(self, batch: TableBatch) -> None:
        """Add what was written to the metrics."""
        name = batch.schema.table.name
        for step in batch.steps:
            if isinstance(step, Changes):
                report = closed(step.rows)
                rows = {"insert": report.inserts, "update": report.updates, "delete": report.deletes}
                self.metrics.streamed(name, rows, report.bytes)
                self.tables.count_changes(batch.schema.table.id, sum(rows.values()))
                if report.rejected:
                    self.metrics.quarantined(name, report.rejected)

    def announce(self, applied: Lsn = INVALID_LSN) -> None:
        """Tell the receiver how far the apply loop is (if it is the one to tell) and what must be kept for others."""
        needed = [table.position for table in self.tables.all() if table.position]
        hold = min(needed, default=applied)
        # A spool that is not durable must not let WAL go that any table still needs.
        self.reception.apply(applied if self.config.spool.durable else min(applied, hold), hold)


def closed(rows: object) -> PartReport:
    """What reading rows came to; the tasks' reports are forgotten."""
    assert isinstance(rows, (LocalRows, TaskRows))
    report = rows.report()
    rows.close()
    return report
