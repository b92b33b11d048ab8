"""Makes batches: from a table's position and the spool's segments to the steps a destination applies.

Small parts are decoded here, at once, which saves a Spark job; large ones by tasks, one per segment.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..config.spool import SpoolConfig
from ..destinations.batch import Changes, Step, TableBatch
from ..errors import SpoolCorrupt, SpoolGap
from ..lsn import Lsn
from ..spark.change_reader import change_schema
from ..spark.rows import LocalRows, TaskRows, read_here
from ..spool import Segment, SegmentIndex, Spool
from ..spool.name import SegmentName
from .schema_following import SchemaFollower
from .spans import Span, SpanReader, TableRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOCAL_BYTES", "BatchReader"]

LOCAL_BYTES = 4 << 20
"""Bytes of a table's messages up to which the driver decodes them itself. Decoding 4 MiB takes about 50 ms, a job of
Python tasks 75 to 100 ms whatever its size (`make bench-engine` prints both)."""

_INDEXES_KEPT = 4096

_Sized = tuple[SegmentName, int]
"""A part of a segment and about how many bytes it has."""


class BatchReader:
    """Reads batches from a spool. Used by several threads."""

    def __init__(
        self, spark: SparkSession | Any, config: SpoolConfig, follower: SchemaFollower, *, quarantine: bool = True
    ) -> None:
        self._spark = spark
        self._config = config
        self._spool = Spool.open(config)
        self._quarantine = quarantine
        self._indexes: OrderedDict[SegmentName, SegmentIndex] = OrderedDict()
        self._lock = threading.Lock()
        self._spans = SpanReader(config, self.index, follower)

    def segments(self, after: Lsn, until: Lsn | None = None) -> list[Segment]:
        """What follows a position; with `until` perhaps only as far. Raises SpoolGap if it is not there any more."""
        return self._spool.segments(after, until=until)

    def holds_since(self, position: Lsn) -> bool:
        """Whether the spool still has everything that follows a position."""
        try:
            if self._spool.segments(position):
                return True
        except SpoolGap:
            return False
        known = self._spool.position()
        return known is not None and known.end <= position

    def size(self) -> int:
        """Bytes in the spool."""
        return self._spool.size()

    def end(self) -> Lsn | None:
        position = self._spool.position()
        return None if position is None else position.covered

    def tells_of_others(self, segments: Sequence[Segment], known: Callable[[int], bool]) -> bool:
        """Whether the event trigger tells of publications here, or of tables that are not known."""
        indexes = (self.index(name) for segment in segments for name in segment.names)
        return any(table.ddl and not known(oid) for index in indexes for oid, table in index.tables.items())

    def is_damaged_for(self, table_id: int, segments: Sequence[Segment]) -> bool:
        """Whether a part that has something of the table cannot be read."""
        for name, _ in self._names(table_id, segments):
            try:
                self._spool.read(name)
            except SpoolCorrupt:
                return True
        return False

    def has_changes(self, table_id: int, segments: Sequence[Segment]) -> bool:
        return any(True for _ in self._names(table_id, segments))

    def spans(self, wanted: TableRange, segments: Sequence[Segment]) -> list[Span]:
        """The table's spans in these segments. Raises TableSchemaChanged where the table must be copied again."""
        return self._spans.spans(wanted, [name for name, _ in self._reached(wanted, segments)])

    def table_batch(self, wanted: TableRange, spans: Sequence[Span], segments: Sequence[Segment]) -> TableBatch:
        """The table's steps in these segments; none when nothing happened to it."""
        names = list(self._reached(wanted, segments))
        steps: list[Step] = []
        for span in spans:
            steps += [] if span.step is None else [span.step]
            steps += self._changes(span, names)
        return TableBatch(wanted.version.target.schema, wanted.start, tuple(steps))

    def index(self, name: SegmentName) -> SegmentIndex:
        with self._lock:
            known = self._indexes.get(name)
        if known is None:
            known = self._spool.index(name)
            with self._lock:
                self._indexes[name] = known
                self._forget_released()
        return known

    def _forget_released(self) -> None:
        """Drop indexes of segments that the spool no longer has, and more if those that it has are very many."""
        oldest = self._spool.oldest_known()
        while self._indexes and (len(self._indexes) > _INDEXES_KEPT or next(iter(self._indexes)).end <= oldest):
            self._indexes.popitem(last=False)

    def _reached(self, wanted: TableRange, segments: Sequence[Segment]) -> Iterator[_Sized]:
        reached = [s for s in segments if s.end > wanted.start and s.start < wanted.end]
        return self._names(wanted.version.schema.table.id, reached)

    def _names(self, table_id: int, segments: Sequence[Segment]) -> Iterator[_Sized]:
        """The parts that have something of the table."""
        known = self._indexes
        for segment in segments:
            for name in segment.names:
                # Of a table that was just copied there may be thousands: a known one is had without a lock.
                table = (known.get(name) or self.index(name)).tables.get(table_id)
                if table is not None and (table.rows or table.truncates or table.ddl):
                    yield name, segment.size // len(segment.names)

    def _changes(self, span: Span, names: Sequence[_Sized]) -> list[Changes]:
        # A segment's commits lie in [start, end); a place with ordinal -1 stands before all of its commit.
        sized = {name: size for name, size in names if name.end > span.lower[0] and name.start <= span.upper[0]}
        target = span.version.target.schema
        table_id = target.table.id
        shares = {name: _share(self.index(name), table_id, size) for name, size in sized.items()}
        inside = [name for name in shares if self.index(name).tables[table_id].rows]
        if not inside:
            return []
        reader = span.reader(self._config, quarantine=self._quarantine)
        schema = change_schema(target)
        rows: LocalRows | TaskRows
        if sum(shares.values()) <= LOCAL_BYTES:
            rows = read_here(self._spark, inside, reader, schema)
            if not rows.table.num_rows:
                return []
        else:
            description = f"changes of {target.table.name}"
            rows = TaskRows(self._spark, [(name,) for name in inside], reader, schema, description)
        return [Changes(target, rows)]


def _share(index: SegmentIndex, table_id: int, size: int) -> int:
    """The table's part of the bytes, by its part of the rows."""
    rows = sum(table.rows for table in index.tables.values())
    return size * index.tables[table_id].rows // max(1, rows)
