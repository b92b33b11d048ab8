"""Tables that come to the publication and leave it while the pipeline runs.

The publication is looked at every few seconds, sooner when the event trigger tells of one, in a thread and on a
connection of its own; what changed is taken up by the apply loop. The catalog is ahead of the stream: a table that left
stays until everything before the look is applied.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import psycopg
import structlog

from ..config.pipeline import OnTableRemoved
from ..errors import DestinationFenced, HeadraceError, SchemaChangeRefused
from ..lsn import Lsn
from ..postgres.connection import connect
from ..postgres.lag import wal_end
from ..postgres.locks import written_tables
from ..postgres.preflight.contract import Severity
from ..postgres.preflight.tables import identity_finding
from ..postgres.publications import PublishedTable, publication_outline, published_tables, read_publication
from ..postgres.source.message_key import read_message_key
from ..schema import ReplicaIdentity, ReplicatedTableSchema
from ..schema_change import ChangeKind, schema_change
from ..schema_policy import SchemaPolicies, SchemaPolicy
from ..table_state import State
from .engine import Engine
from .table_sync import as_table_error
from .tables import Table

__all__ = ["Discovery"]

INTERVAL_S = 3.0
_SHORTEST_S = 0.5
"""Between two looks, whoever asks for them: a thousand commands one after the other are not worth a thousand looks."""
_FILE = 0xFFFFFFFF
_LEFT = {
    ChangeKind.CHANGE_PARTITIONS: (SchemaPolicy.LENIENT, SchemaPolicy.IGNORE),
    ChangeKind.RENAME_TABLE: (SchemaPolicy.IGNORE,),
}
"""By which policies a table stays as it is."""
_OF_PUBLICATIONS = frozenset({ChangeKind.CHANGE_COLUMN_LIST, ChangeKind.CHANGE_ROW_FILTER})

_log = structlog.get_logger("headrace.discovery")


@dataclass(frozen=True, slots=True)
class _Look:
    """The publication as it was once everything before `lsn` was committed."""

    at: float
    """When it was over, by the clock of `Table.described_at`."""
    lsn: Lsn
    tables: Mapping[int, ReplicatedTableSchema]
    being_written: frozenset[int]
    """Tables and leaf partitions to which transactions write that had not ended."""
    ddl_is_told: bool
    """Whether the event trigger tells of partitions that are attached and detached."""


_AWAY = "it was taken out of the publication, or what the publication sends of it was changed"


@dataclass(frozen=True, slots=True)
class _Finding:
    """What the stream does not tell of a table's rows."""

    problem: str
    kinds: frozenset[ChangeKind] = frozenset()
    """The kinds of change that it was, or may have been."""


class Discovery:
    """`start` and `close` the looking; `take_up` is called by the apply loop, again and again, and never waits."""

    def __init__(self, engine: Engine) -> None:
        self._config = engine.config
        self._tables = engine.tables
        self._destination = engine.destination
        self._metrics = engine.metrics
        self._closed = threading.Event()
        self._nudged = threading.Event()
        self._lock = threading.Lock()
        self._news: _Look | None = None
        self._look: _Look | None = None
        """The one taken up last. Tables that it cannot be compared with yet are in `_unsettled`."""
        self._unsettled: set[int] = set()
        self._returned: set[int] = set()
        """Tables that were out of the publication, and are to be compared."""
        self._warned: set[int] = set()
        self._goodbyes = ThreadPoolExecutor(1, "leaving")
        self._gone: SimpleQueue[int] = SimpleQueue()
        """Tables that were removed: one that came back meanwhile was not taken for new."""
        self._not_before: dict[int, float] = {}
        """When a table whose removal failed may be tried again, by the monotonic clock."""
        self._thread = threading.Thread(target=self._run, name="publication", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nudge(self) -> None:
        """Look soon: something was said about publications, or about a table that is not known."""
        self._nudged.set()

    def close(self) -> None:
        self._closed.set()
        self._nudged.set()
        if self._thread.is_alive():
            self._thread.join()
        self._goodbyes.shutdown(wait=True)

    def take_up(self, durable: Lsn, reached: Lsn) -> None:
        """Add, start over and remove tables by the last look.

        A table that stands at `durable`, as the apply loop does, has everything before `reached`.
        """
        with self._lock:
            news, self._news = self._news, None
        if news is not None:
            self._look, self._unsettled = news, {*news.tables}
            for table in self._tables.all():
                self._see(table, news)
        if self._look is not None:
            self._unsettled |= self._came_back(self._look)
            if self._unsettled:
                self._settle(self._look)
        for table in self._tables.leaving():
            if self._may_leave(table, durable, reached) and self._tables.take(table):
                self._goodbyes.submit(self._leave, table)

    def _came_back(self, look: _Look) -> set[int]:
        gone = {self._gone.get_nowait() for _ in range(self._gone.qsize())}
        return {oid for oid in gone if oid in look.tables}

    def _see(self, table: Table, look: _Look) -> None:
        if table.id not in look.tables:
            table.left_at = look.lsn if table.left_at is None else min(table.left_at, look.lsn)
        elif table.left_at is not None:
            table.left_at = None
            self._returned.add(table.id)

    def _settle(self, look: _Look) -> None:
        """Compare what can be compared; add what is new, unless a table of its name is about to leave."""
        known = {table.id: table for table in self._tables.all()}
        leaving = {table.name for table in known.values() if table.left_at is not None}
        unknown = [look.tables[oid] for oid in self._unsettled if oid not in known]
        joining = [schema for schema in unknown if str(schema.table.name) not in leaving]
        if joining:
            names = sorted(str(schema.table.name) for schema in joining)
            _log.info("tables joined the publication", tables=names[:10], count=len(names))
            self._tables.add(joining, look.being_written)
        settled = {oid for oid in self._unsettled if oid in known and self._compared(known[oid], look)}
        self._unsettled -= settled | {schema.table.id for schema in joining}

    def _compared(self, table: Table, look: _Look) -> bool:
        """See what the stream does not tell: the table was out of the publication for a while, or its leaves changed.

        False while it cannot be seen, because the table is being copied, or nothing can be done, because it has
        stopped: what has stopped it may be what is seen here.
        """
        if table.resync_asked or table.state.state is State.INIT or look.at < table.described_at:
            # Its copy is or will be of a later moment than the look.
            self._returned.discard(table.id)
            return True
        if table.stopped:
            return False
        if not table.copied:
            # Of one that was to leave nothing is kept any more; a copy that goes on may be of before it was away.
            return table.id in self._returned and self._taken(table, _Finding(_AWAY))
        published = look.tables[table.id]
        found = _not_sent(table.schema, published, returned=table.id in self._returned)
        found = found or _other_leaves(table.schema, published, ddl_is_told=look.ddl_is_told)
        if found is None and not look.ddl_is_told:
            policies = self._tables.policies.of(table.schema.table)
            found = next((one for one in _untold(table.schema, published) if not _is_left(policies, one)), None)
        return found is None or self._taken(table, found)

    def _taken(self, table: Table, found: _Finding) -> bool:
        """Have the table copied again, unless its policy refuses that, or it would lose what it has kept."""
        refused = self._tables.policies.of(table.schema.table).refused(found.kinds)
        if refused:
            return self._stop(table, f"table {table.name} changed: {found.problem}. The policy refuses {refused}")
        if table.target.has_own(table.schema):
            msg = f"table {table.name} changed: {found.problem}. A copy of it would lose the columns that it has kept"
            return self._stop(table, msg)
        _log.warning("the table is copied again", table=table.name, detail=found.problem)
        table.wait_for_writers = table.resync_asked = True
        self._returned.discard(table.id)
        return True

    def _stop(self, table: Table, msg: str) -> bool:
        """The table fails, once nobody works on it and it is not to be tried again after another failure.

        It is compared again once somebody has decided.
        """
        if table.state.state is not State.ERRORED and self._tables.take(table):
            try:
                error = SchemaChangeRefused(msg)
                self._metrics.table_failed(table.schema.table.name, error.kind)
                self._tables.fail(table, error)
                # For the copy that somebody may ask for.
                table.wait_for_writers = True
            finally:
                self._tables.release(table)
        return False

    def _may_leave(self, table: Table, durable: Lsn, reached: Lsn) -> bool:
        """Whether nothing of it is left to be applied, or nothing can be."""
        if table.busy or table.left_at is None or time.monotonic() < self._not_before.get(table.id, 0.0):
            return False
        if not table.copied or table.stopped:
            return True
        stands = max(table.position, reached) if table.position >= durable else table.position
        return stands >= table.left_at

    def _leave(self, table: Table) -> None:
        drop = self._config.on_table_removed is OnTableRemoved.DROP
        try:
            if drop:
                self._destination.drop_table(table.target.schema)
            self._tables.remove(table)
            self._gone.put(table.id)
        except DestinationFenced:
            # The apply loop meets it too, and ends.
            self._tables.release(table)
        except Exception as error:  # noqa: BLE001 - whatever it is, it comes again later, and nobody waits for it
            failure = as_table_error(error)
            delay = self._config.table_error_retry_delay_ms / 1000
            told = {"table": table.name, "error": str(failure), "hint": failure.hint, "seconds": delay}
            _log.error("a table that left could not be removed; trying again", **told)
            self._not_before[table.id] = time.monotonic() + delay
            # Nothing of it is left to be applied, so the spool need not be kept for it.
            self._tables.give_up(table)
            self._tables.release(table)
        else:
            became = "dropped" if drop else "kept as it is"
            _log.info("table left the publication", table=table.name, destination=became)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with connect(self._config.pg_connection, "publication", pipeline=self._config.id) as connection:
                    self._watch(connection)
            except HeadraceError as error:
                # What is wrong with the source is noticed where it is read; here the question comes again.
                _log.debug("could not look at the publication", error=str(error))
                self._closed.wait(INTERVAL_S)

    def _watch(self, connection: psycopg.Connection[Any]) -> None:
        known: tuple[PublishedTable, ...] | None = None
        while not self._paused():
            outline = publication_outline(connection, self._config.publication_name)
            if outline != known:
                tables = published_tables(connection, self._config.publication_name)
                told = read_message_key(connection) is not None
                # The position last: what the look does not show was committed before it.
                end = wal_end(connection)
                ids = [oid for schema in tables for oid in (schema.table.id, *schema.table.leaves)]
                written = written_tables(connection, ids)
                look = _Look(time.monotonic(), end, {schema.table.id: schema for schema in tables}, written, told)
                with self._lock:
                    self._news = look
                self._warn(connection, look)
                known = outline

    def _paused(self) -> bool:
        """Wait until it is time for a look; True: there is to be none."""
        if self._closed.wait(min(_SHORTEST_S, INTERVAL_S)):
            return True
        self._nudged.wait(max(0.0, INTERVAL_S - _SHORTEST_S))
        self._nudged.clear()
        return self._closed.is_set()

    def _warn(self, connection: psycopg.Connection[Any], look: _Look) -> None:
        """Say of tables that join what is said at a start: such a one is copied, and its inserts come."""
        joining = {oid for oid in look.tables if not self._tables.knows(oid)} - self._warned
        actions = read_publication(connection, self._config.publication_name).actions if joining else frozenset()
        self._warned |= joining
        for oid in joining:
            found = identity_finding(look.tables[oid], actions)
            if found is not None and found.severity is Severity.ERROR:
                _log.warning("a table that joined is not quite ready", found=found.message, hint=found.remedy)


def _not_sent(known: ReplicatedTableSchema, published: ReplicatedTableSchema, *, returned: bool) -> _Finding | None:
    """Whether changes of the table were not sent for a while, or others of them are."""
    if not returned and (not known.entries or known.entries == published.entries):
        return None
    kinds = schema_change(known, published).kinds() & _OF_PUBLICATIONS
    if kinds:
        return _Finding("the publication has another column list or row filter for it", kinds)
    return _Finding(_AWAY)


def _other_leaves(
    known: ReplicatedTableSchema, published: ReplicatedTableSchema, *, ddl_is_told: bool
) -> _Finding | None:
    before = dict(known.leaf_files)
    for leaf, number in published.leaf_files:
        # One that came later, as the event trigger told, has the file it was made with: of its own number.
        if number != before.get(leaf, number) or (leaf not in before and number & _FILE != leaf):
            kinds = frozenset() if ddl_is_told else frozenset({ChangeKind.CHANGE_PARTITIONS})
            problem = "one of its partitions was truncated, rewritten or away, which is not told where the root is sent"
            return _Finding(problem, kinds)
    return None


def _is_left(policies: SchemaPolicies, found: _Finding) -> bool:
    """Whether nothing has to be done, because the table stays as it is by its policy."""
    return all(policies.of(kind) in _LEFT.get(kind, ()) for kind in found.kinds)


def _untold(known: ReplicatedTableSchema, published: ReplicatedTableSchema) -> Iterator[_Finding]:
    """What else the stream does not tell where the event trigger is not installed."""
    if dict(known.leaf_files).keys() != dict(published.leaf_files).keys():
        yield _Finding("partitions were attached or detached", frozenset({ChangeKind.CHANGE_PARTITIONS}))
    if published.leaf_files and known.table.name != published.table.name:
        problem = "it was renamed, which is not told where changes are those of its partitions"
        yield _Finding(problem, frozenset({ChangeKind.RENAME_TABLE}))
    if known.table.replica_identity is not ReplicaIdentity.DEFAULT and _key(known) != _key(published):
        problem = "it has another primary key, which is not told where the replica identity is not the key"
        yield _Finding(problem, frozenset({ChangeKind.CHANGE_KEY}))
    before = {column.name: column.attnum for column in known.columns}
    for column in published.columns:
        if before.get(column.name, column.attnum) != column.attnum:
            problem = f"column {column.name} was dropped, and one of its name added"
            yield _Finding(problem, frozenset({ChangeKind.DROP_COLUMN, ChangeKind.ADD_COLUMN}))


def _key(schema: ReplicatedTableSchema) -> list[int]:
    return [column.attnum for column in schema.table.key]
