"""A batch as plain events, in commit order, between Begin and Commit: for destinations that want rows.

Read part by part of the segments in the driver, so memory holds the rows of one part at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..config.spool import SpoolConfig
from ..events import Begin, Commit, Event
from ..lsn import Lsn
from ..pgoutput import messages as m
from ..pgoutput.decoder import decode
from ..pgoutput.row_events import PlacedEvent, merged_truncates, row_events
from ..pgoutput.timestamps import datetime_from_unix
from ..spark.change_reader import Place, read_messages
from ..spool import Segment
from ..spool.name import SegmentName
from .batches import BatchReader
from .spans import Span

__all__ = ["read_events"]


def read_events(
    reader: BatchReader, spool: SpoolConfig, spans: Sequence[Span], segments: Sequence[Segment]
) -> Iterator[Event]:
    """The events of all tables' spans in these segments. A transaction without any is left out."""
    opened: Commit | None = None
    for name in (name for segment in segments for name in segment.names):
        events = _in_order(reader, spool, spans, name)
        borders = _borders(spool, name) if events or opened else {}
        for event in events:
            begin, commit = borders[event.commit_lsn]
            if opened is None or opened.commit_lsn != event.commit_lsn:
                if opened is not None:
                    yield opened
                yield begin
            # The Commit of a transaction in several parts stands in the last: what is known now may be refined there.
            opened = commit
            yield event
        if opened is not None and opened.commit_lsn in borders:
            opened = borders[opened.commit_lsn][1]
    if opened is not None:
        yield opened


def _in_order(reader: BatchReader, spool: SpoolConfig, spans: Sequence[Span], name: SegmentName) -> list[PlacedEvent]:
    events: list[tuple[Place, PlacedEvent]] = []
    held = reader.index(name).tables
    for span in spans:
        if span.step is not None and span.part == name:
            events.append((span.lower, span.step))
        known = held.get(span.version.schema.table.id)
        if known is not None and known.rows and name.end > span.lower[0] and name.start <= span.upper[0]:
            events += _row_events(span, spool, name)
    # Stable: a relation stands at the place of the first change under it, and was put in front of it.
    events.sort(key=lambda event: event[0])
    return list(merged_truncates(event for _, event in events))


def _borders(spool: SpoolConfig, name: SegmentName) -> Mapping[Lsn, tuple[Begin, Commit]]:
    """Begin and Commit of the part's transactions, by commit LSN."""
    batch, envelope = read_messages(spool, name)
    begins = np.flatnonzero(envelope.kind == ord("B")).tolist()
    ends = {
        int(envelope.transaction[index]): decode(batch.message(index))
        for index in np.flatnonzero(envelope.kind == ord("C")).tolist()
    }
    found = {}
    for number, index in enumerate(begins):
        lsn, xid = Lsn(int(envelope.commit_lsns[number])), int(envelope.xids[number])
        instant = datetime_from_unix(int(envelope.commit_times[number]))
        commit = ends.get(number)
        end = commit.end_lsn if isinstance(commit, m.Commit) else lsn
        found[lsn] = (Begin(Lsn(int(batch.lsns[index])), lsn, xid, instant), Commit(lsn, end, xid, instant))
    return found


def _row_events(span: Span, spool: SpoolConfig, name: SegmentName) -> list[tuple[Place, PlacedEvent]]:
    schema = span.version.target.schema
    return [
        ((event.commit_lsn, event.tx_ordinal), event)
        for read in span.reader(spool, quarantine=True)(name)
        for event in row_events(schema, read.rows)
    ]
