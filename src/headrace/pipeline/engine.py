"""What the parts of a running pipeline share. Made by `build`; the parts know each other only through it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from ..config.lane import UNNAMED
from ..config.pipeline import PipelineConfig
from ..destinations.batch import Changes, EventBatch, TableBatch
from ..destinations.contract import Destination, Durability
from ..errors import (
    DestinationFenced,
    HeadraceError,
    SparkError,
    SpoolGap,
    StoreFenced,
    TableSchemaChanged,
    UnrepresentableKey,
)
from ..lsn import INVALID_LSN, Lsn
from ..pgtypes.registry import unrepresentable_values
from ..schema import TableName
from ..schema_change import ChangeKind
from ..spark.labels import cancel, java_ended, java_is_gone, label_thread
from ..spark.part import PartReport
from ..spark.rows import LocalRows, TaskRows
from ..spool import Segment
from ..stores.contract import PipelineStore
from ..telemetry.metrics import Metrics
from .batches import BatchReader
from .event_stream import read_events
from .memory import MemoryMonitor
from .schema_following import Version
from .shared_reception import LaneReception
from .spans import Span, TableRange
from .tables import Table, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Engine", "Fence", "Stopped", "TableRead"]

_Result = TypeVar("_Result")

_COPIED_AGAIN = "nothing to do: the table is copied again"


class Stopped(Exception):
    """Work was given up because the pipeline stops. Nothing is lost by it."""


class Fence:
    """Block all calls to the destination once another run has taken over the destination or the store.

    Threads may share an instance.
    """

    def __init__(self) -> None:
        self._error: DestinationFenced | StoreFenced | None = None

    @property
    def is_down(self) -> bool:
        return self._error is not None

    def note(self, error: DestinationFenced | StoreFenced) -> None:
        """Keep the first error that says so."""
        self._error = self._error or error

    def check(self) -> None:
        """Raise DestinationFenced or StoreFenced if a call has met it."""
        if self._error is not None:
            raise type(self._error)(self._error.message, detail=self._error.detail)

    def around(self, method: str, table: TableName | None, call: Callable[[], _Result]) -> _Result:
        """Make a call of the destination; a `Surround`."""
        del table
        if method not in _UNFENCED:
            self.check()
        try:
            return call()
        except DestinationFenced as error:
            self.note(error)
            raise


_UNFENCED = frozenset({"startup", "claim", "shutdown"})


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table's part of a batch: as spans of the spool, and as the steps a destination is given."""

    table: Table
    spans: tuple[Span, ...]
    batch: TableBatch


@dataclass(frozen=True, slots=True)
class Engine:
    """One destination's part of a life of a pipeline: its lane."""

    config: PipelineConfig
    store: PipelineStore
    destination: Destination
    spark: SparkSession | Any
    tables: Tables
    batches: BatchReader
    reception: LaneReception
    memory: MemoryMonitor
    metrics: Metrics
    stopping: threading.Event
    lane: str = UNNAMED
    """The destination's name; none if it is the only one."""
    lanes: int = 1
    """How many there are: they share the memory."""
    run_id: str = ""
    """A random word for this start of the pipeline, the same for all its lanes."""
    fence: Fence = field(default_factory=Fence)
    """Whether another run has taken over. That is the lane's end, and says nothing about a table."""

    @property
    def sync_tag(self) -> str:
        """The tag of jobs that a stop cancels at once: copies and catch-ups."""
        return f"headrace-{self.config.id}{self._of_lane}-sync"

    @property
    def write_tag(self) -> str:
        """The tag of the jobs of batches."""
        return f"headrace-{self.config.id}{self._of_lane}-write"

    @property
    def _of_lane(self) -> str:
        return f"-{self.lane}" if self.lane else ""

    def label_thread(self, tag: str) -> None:
        """For a thread that serves this lane alone: its jobs bear the tag, its log lines the destination's name."""
        if self.lane:
            structlog.contextvars.bind_contextvars(destination=self.lane)
        label_thread(self.spark, tag)

    def abandon(self) -> None:
        """A lane that failed gives up what it does, and the pipeline goes on with the others."""
        if self.lane:
            self.stopping.set()
        if self.lane or self.fence.is_down:
            with contextlib.suppress(SparkError):
                cancel(self.spark, self.sync_tag)

    def check_spark(self) -> None:
        """After a failure: raise SparkGone if Java has ended, for then the failure says nothing about a table."""
        if java_is_gone():
            self.stopping.set()
            raise java_ended()

    def check_stop(self) -> None:
        if self.stopping.is_set():
            raise Stopped

    def table_range(self, table: Table, end: Lsn) -> TableRange:
        """What the table has not been given yet, before `end`."""
        handoff = table.handoff
        if handoff is not None and table.written >= handoff.until:
            handoff = None
        return TableRange(Version(table.schema, table.target), table.written, end, handoff)

    def read(self, table: Table, end: Lsn, segments: list[Segment]) -> TableRead:
        """The table's part of a batch. Raises TableSchemaChanged where the table must be copied again."""
        self.tables.policies.check(table.schema, table.target)
        wanted = self.table_range(table, end)
        spans = self.batches.spans(wanted, segments)
        return TableRead(table, tuple(spans), self.batches.table_batch(wanted, spans, segments))

    def write(self, reads: Sequence[TableRead], end: Lsn, segments: list[Segment]) -> None:
        """Give the destination what was read of tables before `end`; their `written` and `pending` tell the rest."""
        for read in reads:
            self.tables.altering(read.table, read.spans)
        some = [read for read in reads if read.batch.steps]
        if some:
            spans = [span for read in some for span in read.spans]
            events = partial(read_events, self.batches, self.config.spool_config(), spans, segments)
            batch = EventBatch(end, tuple(read.batch for read in some), events)
            durability = self.destination.write_events(batch)
            for read in some:
                self.count(read.batch)
                if read.table.id not in batch.unrecorded:
                    read.table.recorded = end
                read.table.pending = durability is Durability.ACCEPTED
        for read in reads:
            self.tables.altered(read.table, read.spans)
            read.table.written = max(read.table.written, end)

    def ask_position(self, table: Table) -> None:
        """After a failed write: it may have been done all the same, and only its answer was lost.

        Or somebody put the destination's table back to an earlier state: then the table goes back too. Raises SpoolGap
        if what it lacks is not in the spool any more.
        """
        applied = self.destination.applied_lsn(table.target.schema)
        if table.acknowledged is not None and (applied is None or applied < table.acknowledged):
            parts = self.destination.copied_parts(table.target.schema)
            if not self.tables.go_back(table, applied, parts, self.batches.holds_since):
                msg = f"the destination's table {table.name} was put back to {applied or 'nothing'}"
                raise SpoolGap(msg, detail="the spool does not have all changes since", hint=_COPIED_AGAIN)
        elif applied is not None and applied > table.position:
            self.tables.place(table, applied)

    def with_text_key(self, table: Table, error: UnrepresentableKey) -> HeadraceError:
        """Have the next copy of a table keep columns of its key as text; return what the table fails with.

        That is TableSchemaChanged where the table may be copied again. Where a copy would lose what the destination has
        kept by its policy, or the policy refuses another type, somebody has to decide.
        """
        schema = table.schema
        fallible = [c for c in schema.key_columns if unrepresentable_values(c.type, c.typmod) is not None]
        columns = [column for column in fallible if column.name in error.columns] or fallible
        if not columns:
            return error
        wanted = replace(schema, table=schema.table.with_text({column.attnum for column in columns}))
        if table.copied and not self._may_change_type(table):
            return error
        table.become(wanted)
        detail = f"{', '.join(column.name for column in columns)} is kept as text from now on: {error.detail}"
        return TableSchemaChanged(error.message, detail=detail)

    def _may_change_type(self, table: Table) -> bool:
        policies = self.tables.policies.of(table.schema.table)
        mirrors = policies.mirrors and not policies.refused([ChangeKind.CHANGE_TYPE])
        return mirrors and not table.target.has_own(table.schema)

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
