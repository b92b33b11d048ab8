"""Makes batches: from a table's position and the spool's segments to the steps a destination applies.

Small parts are decoded here, at once, which saves a Spark job; large ones by tasks, one per segment.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..config.spool import SpoolConfig
from ..destinations.batch import Changes, Step, TableBatch
from ..events import Truncate, TruncateOptions
from ..initial_copy.handoff import Handoff
from ..lsn import Lsn
from ..pgoutput.columnar import TruncateStep, truncates
from ..pgoutput.timestamps import datetime_from_unix
from ..pgtypes.registry import TypeOptions
from ..schema import ReplicatedTableSchema
from ..spark.change_reader import ChangeReader, Place, change_schema, read_messages
from ..spark.rows import LocalRows, TaskRows, read_here
from ..spool import Segment, SegmentIndex, Spool
from ..spool.name import SegmentName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOCAL_BYTES", "BatchReader", "TableRange"]

LOCAL_BYTES = 4 << 20
"""Bytes of a table's messages up to which the driver decodes them itself. Decoding 4 MiB takes about 50 ms, a job of
Python tasks 75 to 100 ms whatever its size (`make bench-engine` prints both)."""

_INDEXES_KEPT = 4096

_Sized = tuple[SegmentName, int]
"""A part of a segment and about how many bytes it has."""


@dataclass(frozen=True, slots=True)
class TableRange:
    """What of a table is to be read: commits from `start` on, before `end`, without what its copy has seen."""

    schema: ReplicatedTableSchema
    start: Lsn
    end: Lsn
    handoff: Handoff | None = None

    def reader(self, spool: SpoolConfig, lower: Place, upper: Place, *, quarantine: bool) -> ChangeReader:
        return ChangeReader(spool, self.schema, lower, upper, self.handoff, TypeOptions(), quarantine)


class BatchReader:
    """Reads batches from a spool. Used by several threads."""

    def __init__(self, spark: SparkSession | Any, config: SpoolConfig, *, quarantine: bool = True) -> None:
        self._spark = spark
        self._config = config
        self._spool = Spool.open(config)
        self._quarantine = quarantine
        self._indexes: OrderedDict[SegmentName, SegmentIndex] = OrderedDict()
        self._lock = threading.Lock()

    def segments(self, after: Lsn) -> list[Segment]:
        """What follows a position. Raises SpoolGap if it is not there any more."""
        return self._spool.segments(after)

    def oldest_recent(self, now: float, seconds: float) -> Lsn | None:
        """Where the oldest segment starts that was published within the last seconds; None: there is no such one."""
        return next((segment.start for segment in self._spool.segments() if now - segment.modified < seconds), None)

    def size(self) -> int:
        """Bytes in the spool."""
        return self._spool.size()

    def end(self) -> Lsn | None:
        position = self._spool.position()
        return None if position is None else position.covered

    def has_changes(self, table_id: int, segments: Sequence[Segment]) -> bool:
        return any(True for _ in self._names(table_id, segments))

    def table_batch(self, wanted: TableRange, segments: Sequence[Segment]) -> TableBatch:
        """The table's steps in these segments; none when nothing happened to it."""
        lower, upper = (int(wanted.start), -1), (int(wanted.end), -1)
        reached = [s for s in segments if s.end > wanted.start and s.start < wanted.end]
        names = list(self._names(wanted.schema.table.id, reached))
        steps: list[Step] = []
        for truncate in self._truncates(wanted, names, (lower, upper)):
            place = (int(truncate.commit_lsn), truncate.tx_ordinal)
            steps += self._changes(wanted, names, lower, place)
            steps.append(_truncate_event(wanted.schema, truncate))
            lower = (place[0], place[1] + 1)
        steps += self._changes(wanted, names, lower, upper)
        return TableBatch(wanted.schema, wanted.start, tuple(steps))

    def truncates(self, wanted: TableRange, name: SegmentName) -> list[Truncate]:
        """The table's truncates in one segment part, as events."""
        bounds = ((int(wanted.start), -1), (int(wanted.end), -1))
        return [_truncate_event(wanted.schema, step) for step in self._truncates(wanted, [(name, 0)], bounds)]

    def index(self, name: SegmentName) -> SegmentIndex:
        with self._lock:
            known = self._indexes.get(name)
        if known is None:
            known = self._spool.index(name)
            with self._lock:
                self._indexes[name] = known
                while len(self._indexes) > _INDEXES_KEPT:
                    self._indexes.popitem(last=False)
        return known

    def _names(self, table_id: int, segments: Sequence[Segment]) -> Iterator[_Sized]:
        """The parts that have something of the table."""
        for segment in segments:
            for name in segment.names:
                table = self.index(name).tables.get(table_id)
                if table is not None and (table.rows or table.truncates):
                    yield name, segment.size // len(segment.names)

    def _truncates(
        self, wanted: TableRange, names: Sequence[_Sized], bounds: tuple[Place, Place]
    ) -> Iterator[TruncateStep]:
        table_id = wanted.schema.table.id
        for name, _ in names:
            table = self.index(name).tables.get(table_id)
            if table is None or not table.truncates:
                continue
            for _, step in truncates(*read_messages(self._config, name), table_id):
                place = (int(step.commit_lsn), step.tx_ordinal)
                if not bounds[0] <= place < bounds[1]:
                    continue
                handoff = wanted.handoff
                if handoff is None or step.commit_lsn >= handoff.until or handoff.truncate_due(step.xid):
                    yield step

    def _changes(self, wanted: TableRange, names: Sequence[_Sized], lower: Place, upper: Place) -> list[Changes]:
        # A segment's commits lie in [start, end); a place with ordinal -1 stands before all of its commit.
        sized = {name: size for name, size in names if name.end > lower[0] and name.start <= upper[0]}
        table_id = wanted.schema.table.id
        shares = {name: _share(self.index(name), table_id, size) for name, size in sized.items()}
        inside = [name for name in shares if self.index(name).tables[table_id].rows]
        if not inside:
            return []
        reader = wanted.reader(self._config, lower, upper, quarantine=self._quarantine)
        schema = change_schema(wanted.schema)
        rows: LocalRows | TaskRows
        if sum(shares.values()) <= LOCAL_BYTES:
            rows = read_here(self._spark, inside, reader, schema)
            if not rows.table.num_rows:
                return []
        else:
            description = f"changes of {wanted.schema.table.name}"
            rows = TaskRows(self._spark, [(name,) for name in inside], reader, schema, description)
        return [Changes(wanted.schema, rows)]


def _share(index: SegmentIndex, table_id: int, size: int) -> int:
    """The table's part of the bytes, by its part of the rows."""
    rows = sum(table.rows for table in index.tables.values())
    return size * index.tables[table_id].rows // max(1, rows)


def _truncate_event(schema: ReplicatedTableSchema, step: TruncateStep) -> Truncate:
    options = TruncateOptions(0)
    if step.truncate.cascade:
        options |= TruncateOptions.CASCADE
    if step.truncate.restart_identity:
        options |= TruncateOptions.RESTART_IDENTITY
    return Truncate(
        step.start_lsn,
        step.commit_lsn,
        step.tx_ordinal,
        step.xid,
        datetime_from_unix(step.commit_time),
        (schema,),
        options,
    )
