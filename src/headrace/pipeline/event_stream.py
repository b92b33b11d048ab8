"""A batch as plain events, in commit order, between Begin and Commit: for destinations that want rows.

Read part by part of the segments in the driver, so memory holds the rows of one part at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Union

import numpy as np

from ..config.spool import SpoolConfig
from ..events import UNCHANGED, Begin, Commit, Delete, Event, Insert, OldRowKind, Relation, Row, Truncate, Update
from ..lsn import Lsn
from ..pgoutput import messages as m
from ..pgoutput.decoder import decode
from ..pgoutput.timestamps import datetime_from_unix
from ..schema import ReplicatedTableSchema
from ..spark.change_reader import Place, read_messages
from ..spool import Segment
from ..spool.name import SegmentName
from .batches import BatchReader
from .spans import Span

__all__ = ["read_events"]

# A union in the old spelling: evaluated at run time, and Python 3.10 must read it.
_Placed = Union[Insert, Update, Delete, Truncate, Relation]  # noqa: UP007


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


def _in_order(reader: BatchReader, spool: SpoolConfig, spans: Sequence[Span], name: SegmentName) -> list[_Placed]:
    events: list[tuple[Place, _Placed]] = []
    held = reader.index(name).tables
    for span in spans:
        if span.step is not None and span.part == name:
            events.append((span.lower, span.step))
        known = held.get(span.version.schema.table.id)
        if known is not None and known.rows and name.end > span.lower[0] and name.start <= span.upper[0]:
            events += _row_events(span, spool, name)
    # Stable: a relation stands at the place of the first change under it, and was put in front of it.
    events.sort(key=lambda event: event[0])
    return list(_merged([event for _, event in events]))


def _merged(events: Sequence[_Placed]) -> Iterator[_Placed]:
    """One Truncate per statement: each table has brought its own."""
    held: _Placed | None = None
    for event in events:
        if (
            isinstance(held, Truncate)
            and isinstance(event, Truncate)
            and (held.commit_lsn, held.tx_ordinal) == (event.commit_lsn, event.tx_ordinal)
        ):
            held = replace(held, schemas=held.schemas + event.schemas)
            continue
        if held is not None:
            yield held
        held = event
    if held is not None:
        yield held


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


def _row_events(span: Span, spool: SpoolConfig, name: SegmentName) -> list[tuple[Place, _Placed]]:
    schema = span.version.target.schema
    names = [column.name for column in schema.columns]
    identity = {column.name for column in schema.identity}
    return [
        ((change["commit_lsn"], change["tx_ordinal"]), _row_event(schema, change, names, identity))
        for read in span.reader(spool, quarantine=True)(name)
        for change in read.rows.to_pylist()
    ]


def _row_event(
    schema: ReplicatedTableSchema, change: dict[str, Any], names: Sequence[str], identity: set[str]
) -> _Placed:
    place = (
        Lsn(change["start_lsn"]), Lsn(change["commit_lsn"]), change["tx_ordinal"], change["xid"],
        change["commit_time"], schema,
    )  # fmt: skip
    if change["op"] == "I":
        return Insert(*place, change["row"])
    kind = None if change["old_kind"] is None else OldRowKind(change["old_kind"])
    old: Row | None = change["old"]
    if kind is OldRowKind.KEY and old is not None:
        old = {column: value for column, value in old.items() if column in identity}
    if change["op"] == "D":
        assert old is not None
        assert kind is not None
        return Delete(*place, old, kind)
    row = change["row"]
    for position in change["unchanged"] or ():
        row[names[position]] = UNCHANGED
    return Update(*place, row, old, kind)
