"""Cuts a table's part of the spool into spans: changes of one schema version, and the step that stands in front.

Segments are opened only where their index says that the table may look different, was truncated, or was described by
the event trigger: a batch of a table that stays as it is costs nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..config.spool import SpoolConfig
from ..errors import KeyRangesOvertaken
from ..events import Relation, Truncate
from ..initial_copy.handoff import Handoff
from ..lsn import Lsn
from ..pgoutput.columnar import Emitted, TruncateStep, truncates
from ..pgoutput.row_events import truncate_event
from ..pgoutput.schema_marks import RelationMark, emitted_for, relation_marks
from ..pgtypes.registry import TypeOptions
from ..schema import DDL_PREFIX, ReplicatedTableSchema
from ..spark.change_reader import ChangeReader, Place, read_messages
from ..spool import SegmentIndex, relation_digest
from ..spool.name import SegmentName
from .schema_following import SchemaFollower, Version

__all__ = ["Span", "SpanReader", "TableRange"]

_Mark = TruncateStep | Emitted | RelationMark
_SpanStep = Truncate | Relation

_NOWHERE: Place = (0, -1)


@dataclass(frozen=True, slots=True)
class TableRange:
    """What of a table is to be read: commits from `start` on, before `end`, without what its copy has seen."""

    version: Version
    """The one in force at `start`."""
    start: Lsn
    end: Lsn
    handoff: Handoff | None = None

    def due(self, lsns: npt.NDArray[np.int64], xids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which changes the table has not been given yet. Of a copy by key ranges: those that some range has not."""
        inside: npt.NDArray[np.bool_] = (lsns >= int(self.start)) & (lsns < int(self.end))
        if self.handoff is not None:
            inside &= (lsns >= int(self.handoff.until)) | self.handoff.may_be_due(xids.astype(np.uint32))
        return inside

    def statement_due(self, commit_lsn: Lsn, xid: int) -> bool:
        """The same for what changes a table as a whole."""
        if not self.start <= commit_lsn < self.end:
            return False
        return self.handoff is None or commit_lsn >= self.handoff.until or self.handoff.statement_due(xid)


@dataclass(frozen=True, slots=True)
class Span:
    """Changes at or after `lower` and before `upper`, all of one schema version."""

    version: Version
    lower: Place
    upper: Place
    handoff: Handoff | None = None
    step: _SpanStep | None = None
    """What happens to the table first."""
    part: SegmentName | None = None
    """Where the step was found."""
    began: Lsn | None = None
    """The commit that brought the version; None: it was in force before."""

    def reader(self, spool: SpoolConfig, *, quarantine: bool) -> ChangeReader:
        schema, target = self.version.schema, self.version.target
        other = None if target.is_same(schema) else target
        return ChangeReader(spool, schema, self.lower, self.upper, self.handoff, TypeOptions(), quarantine, other)


class SpanReader:
    """Finds spans. Used by several threads."""

    def __init__(
        self, config: SpoolConfig, index: Callable[[SegmentName], SegmentIndex], follower: SchemaFollower
    ) -> None:
        self._config = config
        self._index = index
        self._follower = follower
        self._lock = threading.Lock()
        self._known: dict[int, tuple[ReplicatedTableSchema, set[str]]] = {}
        """Per table the digests of relations that were found to be those of a schema."""

    def spans(self, wanted: TableRange, names: Sequence[SegmentName]) -> list[Span]:
        """The table's spans in these parts, in order; the first has no step.

        Raises TableSchemaChanged where the table must be copied again.
        """
        last = (int(wanted.end), -1)
        spans = [Span(wanted.version, (int(wanted.start), -1), last, wanted.handoff)]
        for name in names:
            for mark in self._marks(wanted, spans[-1].version.schema, name):
                before = next(s.version for s in reversed(spans) if s.began != mark.commit_lsn)
                begun = self._begun(wanted, spans[-1].version, before, mark)
                if begun is not None:
                    place = (int(mark.commit_lsn), mark.tx_ordinal)
                    spans[-1] = replace(spans[-1], upper=place)
                    spans.append(replace(begun, lower=place, upper=last, part=name))
        return spans

    def _marks(self, wanted: TableRange, schema: ReplicatedTableSchema, name: SegmentName) -> Iterator[_Mark]:
        """What may be a step, in the order of commits."""
        table_id = schema.table.id
        index = self._index(name).tables.get(table_id)
        if index is None:
            return
        digests = set(index.relations)
        look = bool(digests) and not digests <= self._known_digests(schema)
        if not (index.truncates or index.ddl or look):
            return
        batch, envelope = read_messages(self._config, name)
        marks: list[_Mark] = []
        if index.truncates:
            marks += [
                step
                for _, step in truncates(batch, envelope, table_id)
                if wanted.statement_due(step.commit_lsn, step.xid)
            ]
        if index.ddl:
            found = emitted_for(batch, envelope, f"{DDL_PREFIX}{table_id}")
            marks += [emitted for emitted in found if wanted.statement_due(emitted.commit_lsn, emitted.xid)]
        if index.ddl or look:
            marks += relation_marks(batch, envelope, table_id, wanted.due)
        # A relation stands at the first change under it, and so behind a message of the same transaction.
        yield from sorted(marks, key=lambda mark: (mark.commit_lsn, mark.tx_ordinal))

    def _begun(self, wanted: TableRange, version: Version, before: Version, mark: _Mark) -> Span | None:
        """The span that begins at the mark, not placed yet; None: the mark means nothing."""
        handoff = wanted.handoff
        if isinstance(mark, TruncateStep):
            return Span(version, _NOWHERE, _NOWHERE, handoff, truncate_event((version.target.schema,), mark))
        if isinstance(mark, Emitted):
            followed = self._follower.of_message(version, before, mark)
        else:
            followed = self._follower.of_relation(version, before, mark)
            now = version if followed is None else followed.version
            self._learn(now.schema, relation_digest(mark.payload))
        if followed is None:
            return None
        if handoff is not None and handoff.key and mark.commit_lsn < handoff.until:
            msg = "the table was altered while it was copied by key ranges"
            raise KeyRangesOvertaken(msg)
        return Span(followed.version, _NOWHERE, _NOWHERE, handoff, followed.step, began=mark.commit_lsn)

    def _known_digests(self, schema: ReplicatedTableSchema) -> set[str]:
        with self._lock:
            known, digests = self._known.get(schema.table.id, (None, set[str]()))
            return digests if known == schema else set()

    def _learn(self, schema: ReplicatedTableSchema, digest: str) -> None:
        with self._lock:
            known, digests = self._known.get(schema.table.id, (None, set[str]()))
            self._known[schema.table.id] = (schema, digests | {digest} if known == schema else {digest})
