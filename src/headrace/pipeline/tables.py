"""The tables of a running pipeline: state, position and copy of each. The only place that moves a table.

`position` is where a table stands durably: everything before it is at the destination. `written` is where its next
events begin; it is ahead of `position` while the destination has only accepted what it was given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from ..destinations.contract import Destination
from ..errors import HeadraceError, PipelineStateError, RetryPolicy, TableNotFound
from ..initial_copy.handoff import Handoff
from ..lsn import INVALID_LSN, Lsn
from ..schema import ReplicatedTableSchema
from ..stores.contract import PipelineStore
from ..stores.records import APPLY, Worker
from ..table_state import PERSISTED, State, TableState, advance
from .copy_progress import CopyProgress
from .copy_records import stored_handoff
from .failpoint import reach
from .retries import Retries

__all__ = ["Table", "Tables"]

_COPIED = frozenset({State.FINISHED_COPY, State.SYNC_WAIT, State.CATCHUP, State.SYNC_DONE, State.READY})

_log = structlog.get_logger("headrace.tables")


@dataclass(slots=True, eq=False)
class Table:
    """One table. Read from any thread; moved by whoever works on it, which is one thread at a time (`busy`)."""

    schema: ReplicatedTableSchema
    state: TableState
    position: Lsn = INVALID_LSN
    written: Lsn = INVALID_LSN
    handoff: Handoff | None = None
    copied: bool = False
    """Whether its rows stand at the destination, so that a failure need not begin with a copy."""
    own_progress: bool = False
    """Whether the store has its position apart from the apply loop's: until it is in step with that."""
    pending: bool = False
    """Whether the destination has accepted something that is not durable yet."""
    whole_only: bool = False
    """Whether its next copy must be under one snapshot: changes have overtaken a copy by key ranges."""
    busy: bool = False
    resync_asked: bool = False
    changes: int = 0
    """Changes applied in this life, before folding."""
    retries: Retries = field(default_factory=Retries)
    copy: CopyProgress = field(default_factory=CopyProgress)

    @property
    def id(self) -> int:
        return self.schema.table.id

    @property
    def name(self) -> str:
        return str(self.schema.table.name)


class Tables:
    """All of them. Every move is checked against `table_state` and stored before anyone acts on it."""

    def __init__(self, store: PipelineStore, retries: Callable[[], Retries] = Retries) -> None:
        self._store = store
        self._retries = retries
        self._lock = threading.RLock()
        self._tables: dict[int, Table] = {}

    def load(self, published: Sequence[ReplicatedTableSchema], destination: Destination) -> None:
        """Take the publication's tables as the store knows them; forget those that left it."""
        states = self._store.get_table_states()
        for gone in set(states) - {schema.table.id for schema in published}:
            _log.info("table left the publication; its destination stays as it is", table_id=gone)
            self._store.delete_table(gone)
        new = {s.table.id: TableState(State.INIT) for s in published if s.table.id not in states}
        self._store.update_table_states(new)
        self._tables = {
            schema.table.id: self._load(schema, states.get(schema.table.id, TableState(State.INIT)), destination)
            for schema in published
        }

    def _load(self, schema: ReplicatedTableSchema, state: TableState, destination: Destination) -> Table:
        table = Table(schema, state, retries=self._retries())
        if state.retry_policy in (None, RetryPolicy.TIMED):
            table.retries.succeeded()
        table.copied = self._is_copied(schema.table.id, state)
        if not table.copied:
            table.position = table.written = self._copy_position(table)
            return table
        version = self._store.get_table_schema(table.id, Lsn((1 << 64) - 1))
        if version is not None:
            table.schema = version.schema
        table.handoff = stored_handoff(self._store, table.schema)
        table.own_progress = self._store.get_progress(Worker(table.id)) is not None or state.state is not State.READY
        table.position = table.written = self._stored_position(table, destination)
        return table

    def _is_copied(self, table_id: int, state: TableState) -> bool:
        """Whether its rows stand at the destination; of a table in error, by what stood before the errors."""
        if state.state is not State.ERRORED:
            return state.state in _COPIED
        history = [entry.state.state for entry in self._store.get_table_state_history(table_id)]
        before = [state for state in history if state is not State.ERRORED]
        return bool(before) and before[-1] in _COPIED

    def _copy_position(self, table: Table) -> Lsn:
        """From where a copy by key ranges, which goes on when a worker is free, needs the spool to be kept."""
        copy = None if table.state.state is State.INIT else self._store.get_copy(table.id)
        return INVALID_LSN if copy is None or copy[0].one_snapshot else copy[0].start_lsn

    def _stored_position(self, table: Table, destination: Destination) -> Lsn:
        """The furthest that store and destination have on record: none of them is ever ahead of the truth.

        A table with progress of its own is not where the apply loop is, even if it is called Ready: an operator may
        have rolled it back from Errored.
        """
        own = self._store.get_progress(Worker(table.id))
        known = [own, destination.applied_lsn(table.schema), table.state.lsn]
        if own is None and table.state.state is State.READY:
            known.append(self._store.get_progress(APPLY))
        copy = self._store.get_copy(table.id)
        if copy is not None:
            known.append(copy[0].start_lsn)
        return max((lsn for lsn in known if lsn is not None), default=INVALID_LSN)

    # -- looking ------------------------------------------------------------------------------------------------

    def all(self) -> list[Table]:
        with self._lock:
            return list(self._tables.values())

    def named(self, name: str) -> Table:
        for table in self.all():
            if name in (table.name, table.schema.table.name.name) or name == table.schema.table.name.quoted:
                return table
        raise TableNotFound(f"no table {name} in this pipeline")

    def in_state(self, *states: State) -> list[Table]:
        return [table for table in self.all() if table.state.state in states]

    def count_changes(self, table_id: int, changes: int) -> None:
        """Add what was applied to a table; by whoever works on it."""
        table = self._tables.get(table_id)
        if table is not None:
            table.changes += changes

    def counts(self) -> Mapping[State, int]:
        states = [table.state.state for table in self.all()]
        return {state: states.count(state) for state in State}

    # -- moving -------------------------------------------------------------------------------------------------

    def take(self, table: Table) -> bool:
        """Claim a table for work; False if someone has it."""
        with self._lock:
            if table.busy:
                return False
            table.busy = True
            return True

    def release(self, table: Table) -> None:
        with self._lock:
            table.busy = False

    def move(self, tables: Iterable[Table], to: State, lsn: Lsn | None = None) -> None:
        """Move tables to a state, all or none."""
        with self._lock:
            moved = [(table, TableState(to, lsn)) for table in tables]
            self._move(moved)

    def advance(self, table: Table, lsn: Lsn) -> None:
        """Everything before `lsn` is durable for a table that has its own progress."""
        self._store.update_progress(Worker(table.id), lsn)
        table.own_progress = True
        table.position = max(table.position, lsn)
        table.written = max(table.written, table.position)

    def in_step(self, tables: Sequence[Table]) -> None:
        """These stand where the apply loop stands, whose progress is stored: they need none of their own."""
        with self._lock:
            done = [table for table in tables if table.state.state is State.SYNC_DONE]
            self._move([(table, TableState(State.READY)) for table in done])
            reach("apply.after_ready")
            for table in tables:
                self._store.delete_progress(Worker(table.id))
                table.own_progress, table.handoff = False, None
                table.retries.succeeded()

    def fail(self, table: Table, error: HeadraceError) -> None:
        """Take the table out of the batch. Its position is stored first, because others go on from theirs."""
        with self._lock:
            policy = table.retries.failed(error)
            reach("errored.before_progress", table.name)
            if table.copied:
                self._store.update_progress(Worker(table.id), table.position)
                table.own_progress = True
            elif not self._resumable(table):
                # Its copy starts over: nothing in the spool needs to wait for it.
                table.position = INVALID_LSN
            reach("errored.after_progress", table.name)
            table.written, table.pending = table.position, False
            reason = str(error) if policy is error.retry else f"{error} (tried {table.retries.attempts} times)"
            self._move([(table, TableState(State.ERRORED, None, reason, error.hint, policy))])
            reach("errored.after_state", table.name)
        log = _log.warning if policy is RetryPolicy.TIMED else _log.error
        log("table failed", table=table.name, kind=error.kind, error=str(error), hint=error.hint, retry=policy.value)

    def start_over(self, table: Table) -> None:
        """Back to Init: the table is copied again."""
        with self._lock:
            if table.state.state is not State.INIT:
                self._move([(table, TableState(State.INIT))])
            table.copied, table.handoff, table.pending = False, None, False
            table.position = table.written = INVALID_LSN
            if table.resync_asked:
                # Only then: a copy that fails again and again starts over each time, and its failures must count.
                table.retries.succeeded()
            table.resync_asked = False

    def roll_back(self, table: Table) -> None:
        """Take a failed table out of Errored and try again at once. Raises PipelineStateError for any other table."""
        with self._lock:
            if table.state.state is not State.ERRORED:
                msg = f"table {table.name} has not failed: it is in state {table.state.state.value}"
                raise PipelineStateError(msg, hint="to copy it again, resync it")
            table.state = self._store.rollback_table_state(table.id)
            table.copied = self._is_copied(table.id, table.state)
            table.retries.succeeded()

    def give_up(self, table: Table) -> None:
        """Stop keeping changes for a table that failed: it will be copied again when it comes back."""
        with self._lock:
            table.copied, table.handoff = False, None
            table.position = table.written = INVALID_LSN

    def _resumable(self, table: Table) -> bool:
        known = self._store.get_copy(table.id)
        return known is not None and not known[0].one_snapshot

    def _move(self, moves: Sequence[tuple[Table, TableState]]) -> None:
        for table, to in moves:
            if table.state != to:
                advance(table.state, to)
        stored = {table.id: to for table, to in moves if to.state in PERSISTED}
        if stored:
            self._store.update_table_states(stored)
        for table, to in moves:
            if table.state != to and to.state is not State.ERRORED:
                lsn = None if to.lsn is None else str(to.lsn)
                _log.info("table moved", table=table.name, was=table.state.state.value, state=to.state.value, lsn=lsn)
            table.state = to
