"""What can be seen of a pipeline from outside, whether it runs or not: in its store, at its source, in its spool.

Each of the three may be out of reach; what the others say is told all the same. Nothing is created or changed.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from ..config.pipeline import PipelineConfig, PipelineMode, StoreKind
from ..errors import ConfigError, HeadraceError, PublicationNotFound, SlotNotFound
from ..lsn import Lsn
from ..postgres.connection import connect
from ..postgres.lag import slot_lag, wal_end
from ..postgres.publications import publication_outline
from ..postgres.slots import SlotState, require_own, slot_state
from ..postgres.translation import translated_errors
from ..schema import TableName
from ..spool import Segment, Spool
from ..stores.contract import PipelineStore
from ..stores.records import APPLY, ENDED_STATES, SILENT_AFTER_S, Heartbeat, Worker
from ..stores.requests import RequestKind
from ..table_state import State, TableState

__all__ = [
    "Observation",
    "Problem",
    "SourceObservation",
    "SourceObserver",
    "SpoolObservation",
    "TableObservation",
    "observe",
]

_RECEIVER_SILENT_AFTER_S = 60.0
"""A receiver reports every five seconds, unless it waits for a connection."""

_FULL_BYTES = 1 << 18
"""A disk with less space is full: the next segment, or a page of the store's journal, may not fit."""

_ESTIMATES = """
SELECT oid::int8, reltuples::int8 FROM pg_catalog.pg_class WHERE oid = ANY(%s::oid[]) AND reltuples >= 0
"""


@dataclass(frozen=True, slots=True)
class TableObservation:
    """One table. None stands for what nobody can tell, or what does not apply to its state."""

    id: int
    name: TableName | None
    """None if only the source could tell, and it is out of reach."""
    state: TableState | None
    """None: published, but the pipeline has not seen it yet."""
    since: datetime | None = None
    position: Lsn | None = None
    """Up to where it is durable at the destination."""
    copied_rows: int | None = None
    estimated_rows: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    request: RequestKind | None = None
    """What an operator asked for and the pipeline has not done yet."""
    destination: str = ""
    """Its destination's name, where there are several."""


@dataclass(frozen=True, slots=True)
class SourceObservation:
    """The slot, the end of the WAL, and the publication's tables with the server's estimate of their rows."""

    slot: SlotState | None
    wal_end: Lsn | None = None
    unconfirmed_bytes: int | None = None
    retained_bytes: int | None = None
    tables: Mapping[int, TableName] = field(default_factory=dict)
    estimates: Mapping[int, int] = field(default_factory=dict)
    publication_error: HeadraceError | None = None
    slot_error: HeadraceError | None = None
    """The slot's name is taken by a slot that this pipeline cannot read; `slot` is None then."""


@dataclass(frozen=True, slots=True)
class SpoolObservation:
    """Segments of raw WAL. `covered`: nothing before it is missing."""

    segments: Sequence[Segment]
    covered: Lsn | None

    @property
    def bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def oldest_seconds(self) -> float | None:
        return _age(self.segments[0]) if self.segments else None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that holds up the pipeline or one of its destinations, and what to do about it."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Observation:
    """A pipeline at one moment."""

    tables: Sequence[TableObservation]
    """With several destinations, once for each."""
    source: SourceObservation | None
    source_error: HeadraceError | None
    spool: SpoolObservation | None
    """None: there is none yet."""
    spool_error: HeadraceError | None
    has_slot: bool = True
    """Whether it reads a slot at all: one that only copies does not."""
    heartbeats: Mapping[str, Heartbeat] = field(default_factory=dict)
    """What the running pipeline last reported, by the destination's name."""
    full_disks: Sequence[str] = ()
    """Places of the store and the spool whose disk has no space left."""
    observed_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def problems(self) -> list[Problem]:
        """What heartbeats and disks show, beside failed tables, a lost slot and what cannot be reached."""
        hint = "free space on it, or enlarge it: the pipeline then continues by itself"
        found = [Problem(f"the disk that holds {place} is full", hint) for place in self.full_disks]
        slot_error = None if self.source is None else self.source.slot_error
        if slot_error is not None:
            found.append(Problem(slot_error.message, slot_error.hint))
        found += [problem for name, heartbeat in self.heartbeats.items() for problem in self._problems(name, heartbeat)]
        return list(dict.fromkeys(found))

    def _problems(self, name: str, heartbeat: Heartbeat) -> list[Problem]:
        who, silent = f"process {heartbeat.pid} on {heartbeat.host}", heartbeat.silent_s(self.observed_at)
        if heartbeat.state == "failed":
            msg = f"destination {name} failed" if name else f"the pipeline ({who}) ended by an error"
            hint = heartbeat.hint or "read its log, and start it again"
            return [Problem(f"{msg}: {heartbeat.problem}" if heartbeat.problem else msg, hint)]
        if heartbeat.state in ENDED_STATES:
            return []
        if silent >= SILENT_AFTER_S and (self._slot_active or _has_process(heartbeat)):
            msg = f"the pipeline ({who}) has not reported for {silent:.0f} s: it is stopped, or hangs"
            return [Problem(msg, "look at the process; if it does not go on, end it and start it again")]
        if silent >= SILENT_AFTER_S:
            msg = f"the pipeline ({who}) ended {silent:.0f} s ago without stopping in order"
            return [Problem(msg, "start it again: it continues where the destination stands")]
        found = []
        if heartbeat.receiver_silent_s >= _RECEIVER_SILENT_AFTER_S:
            pid = heartbeat.receiver_pid
            receiver = "receiver" if pid is None else f"receiver, process {pid},"
            msg = f"the {receiver} of the pipeline ({who}) has not reported for {heartbeat.receiver_silent_s:.0f} s"
            which = "the receiver's process" if pid is None else f"process {pid}"
            found.append(Problem(msg, f"look at {which}; if it does not go on, end it: it is started again"))
        if heartbeat.problem is not None:
            where = f"destination {name}: " if name else ""
            found.append(Problem(where + heartbeat.problem, heartbeat.hint or "read the pipeline's log"))
        return found

    @property
    def _slot_active(self) -> bool:
        return self.source is not None and self.source.slot is not None and self.source.slot.active

    @property
    def begun(self) -> bool:
        """Whether the pipeline has copied or streamed anything."""
        return any(table.state is not None and table.state.state is not State.INIT for table in self.tables)

    @property
    def running(self) -> bool | None:
        """Whether a process reports, or reads the slot; None if neither the store nor the source can tell."""
        if any(heartbeat.is_alive(self.observed_at) for heartbeat in self.heartbeats.values()):
            return True
        return None if self.source is None or not self.has_slot else self._slot_active

    @property
    def errored(self) -> list[TableObservation]:
        return [table for table in self.tables if table.state is not None and table.state.state is State.ERRORED]

    @property
    def slot_lost(self) -> bool:
        """The slot will not deliver what the tables still need: invalidated, or gone."""
        if self.source is None or not self.has_slot:
            return False
        return self.begun if self.source.slot is None else self.source.slot.lost


def _has_process(heartbeat: Heartbeat) -> bool:
    """Whether the process that wrote a heartbeat exists; False if it ran on another machine."""
    if heartbeat.host != socket.gethostname():
        return False
    try:
        os.kill(heartbeat.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class SourceObserver:
    """Observe the source of a pipeline, again and again over one connection; use it in a `with` block."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self._connection: psycopg.Connection[Any] | None = None

    def __enter__(self) -> SourceObserver:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def observe(self) -> tuple[SourceObservation | None, HeadraceError | None]:
        """Return what the source shows, or the error that kept it from answering; the next call connects again."""
        try:
            if self._connection is None:
                self._connection = connect(self._config.pg_connection, "status", pipeline=self._config.id)
            return _look_at_source(self._connection, self._config), None
        except HeadraceError as error:
            self.__exit__()
            return None, error


def observe(
    config: PipelineConfig, stores: Mapping[str, PipelineStore | None], observer: SourceObserver
) -> Observation:
    """Look at the three places. Without a store, the publication's tables are all that is known of tables.

    `stores` is by the destination's name, which is empty for the only one.
    """
    source, source_error = observer.observe()
    spool, spool_error = _spool(config)
    found = [
        replace(table, destination=name) for name, store in stores.items() for table in _tables(store, source, spool)
    ]
    tables = sorted(found, key=lambda table: (table.name is None, table.name, table.id))
    reports = {name: None if store is None else store.get_heartbeat() for name, store in stores.items()}
    heartbeats = {name: report for name, report in reports.items() if report is not None}
    has_slot = config.mode is not PipelineMode.COPY_ONLY
    disks = _full_disks(config)
    return Observation(tables, source, source_error, spool, spool_error, has_slot, heartbeats, disks)


def _full_disks(config: PipelineConfig) -> list[str]:
    """Return the places of store and spool, of those in local files, on whose disk nothing can be written."""
    uri = config.spool_config().uri
    places = [] if "://" in uri and not uri.startswith("file://") else [Path(uri.removeprefix("file://"))]
    if config.store.kind is StoreKind.SQLITE:
        places.append(config.store_path)
    return [str(place) for place in places if place.exists() and shutil.disk_usage(place).free < _FULL_BYTES]


def _look_at_source(connection: psycopg.Connection[Any], config: PipelineConfig) -> SourceObservation:
    slot = slot_state(connection, config.slot_name)
    if slot is not None and config.mode is not PipelineMode.COPY_ONLY:
        try:
            require_own(slot, connection.info.dbname)
        except ConfigError as error:
            seen = SourceObservation(None, wal_end(connection), slot_error=error)
            return _look_at_tables(connection, config, seen)
    end, unconfirmed, retained = None, None, None
    try:
        lag = slot_lag(connection, config.slot_name)
        end, unconfirmed, retained = lag.wal_end, lag.unconfirmed_bytes, lag.retained_bytes
    except SlotNotFound:
        slot, end = None, wal_end(connection)
    return _look_at_tables(connection, config, SourceObservation(slot, end, unconfirmed, retained))


def _look_at_tables(
    connection: psycopg.Connection[Any], config: PipelineConfig, seen: SourceObservation
) -> SourceObservation:
    """Add what the source shows of the publication."""
    try:
        published = publication_outline(connection, config.publication_name)
    except PublicationNotFound as error:
        return replace(seen, publication_error=error)
    names = {table.id: table.name for table in published}
    with translated_errors("cannot read the tables' sizes"):
        estimates = dict(connection.execute(_ESTIMATES, (list(names),)).fetchall())
    return replace(seen, tables=names, estimates=estimates)


def _spool(config: PipelineConfig) -> tuple[SpoolObservation | None, HeadraceError | None]:
    settings = config.spool_config()
    local = "://" not in settings.uri or settings.uri.startswith("file://")
    if local and not Path(settings.uri.removeprefix("file://")).is_dir():
        return None, None
    try:
        spool = Spool.open(settings)
        segments, position = spool.segments(), spool.position()
    except HeadraceError as error:
        return None, error
    return SpoolObservation(segments, None if position is None else position.covered), None


def _tables(
    store: PipelineStore | None, source: SourceObservation | None, spool: SpoolObservation | None
) -> list[TableObservation]:
    states = {} if store is None else store.get_table_states()
    stored = {} if store is None else {v.table_id: v.schema.table.name for v in store.get_table_schemas()}
    names = {**stored, **(source.tables if source is not None else {})}
    asked = {} if store is None else {request.table_id: request.kind for request in store.get_requests()}
    found = []
    for table_id in {**states, **names}:
        seen = TableObservation(table_id, names.get(table_id), states.get(table_id), request=asked.get(table_id))
        found.append(seen if store is None or seen.state is None else _known(seen, seen.state, store, source, spool))
    return found


def _known(
    table: TableObservation,
    state: TableState,
    store: PipelineStore,
    source: SourceObservation | None,
    spool: SpoolObservation | None,
) -> TableObservation:
    """A table that the store knows, with all that can be told of it."""
    history = store.get_table_state_history(table.id)
    copy = store.get_copy(table.id)
    position = _position(store, table.id, state)
    lag_bytes, lag_seconds = _lag(position, source, spool)
    return replace(
        table,
        since=history[-1].entered_at if history else None,
        position=position,
        # A range that was begun is on record before its rows are counted.
        copied_rows=None if copy is None else sum(max(0, record.rows) for record in copy[1]),
        estimated_rows=None if source is None else source.estimates.get(table.id),
        lag_bytes=lag_bytes,
        lag_seconds=lag_seconds,
    )


def _position(store: PipelineStore, table_id: int, state: TableState) -> Lsn | None:
    """As `Tables` finds it at a start, but without asking the destination."""
    if state.state in (State.INIT, State.DATA_SYNC):
        return None
    own = store.get_progress(Worker(table_id))
    if own is None and state.state is State.READY:
        # While nothing is written, progress is stored now and then only; the heartbeat is newer.
        heartbeat = store.get_heartbeat()
        applied = None if heartbeat is None else heartbeat.applied
        own = max((lsn for lsn in (store.get_progress(APPLY), applied) if lsn is not None), default=None)
    copy = store.get_copy(table_id)
    known = [own, state.lsn, None if copy is None else copy[0].start_lsn]
    return max((lsn for lsn in known if lsn is not None), default=None)


def _lag(
    position: Lsn | None, source: SourceObservation | None, spool: SpoolObservation | None
) -> tuple[int | None, float | None]:
    """WAL behind a position, and for how long the oldest change behind it has waited in the spool."""
    if position is None:
        return None, None
    waiting = [] if spool is None else [segment for segment in spool.segments if segment.end > position]
    reached = position
    if not waiting and spool is not None and spool.covered is not None:
        # Nothing of ours lies between.
        reached = max(position, spool.covered)
    lag_bytes = None if source is None or source.wal_end is None else max(0, source.wal_end - reached)
    if waiting:
        return lag_bytes, _age(waiting[0])
    # While nobody reads the slot, changes may wait at the source, for nobody knows how long.
    reading = source is not None and source.slot is not None and source.slot.active
    return lag_bytes, 0.0 if reading else None


def _age(segment: Segment) -> float:
    return max(0.0, time.time() - segment.modified)
