"""The tables of a running pipeline: state, position and copy of each. The only place that moves a table.

`position` is where a table stands durably: everything before it is at the destination. `written` is where its next
events begin; it is ahead of `position` while the destination has only accepted what it was given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from ..config.schema_changes import SchemaChangesConfig
from ..destinations.contract import Destination
from ..errors import (
    ConfigError,
    HeadraceError,
    PipelineStateError,
    RetryPolicy,
    TableNotFound,
)
from ..initial_copy.handoff import Handoff
from ..lsn import INVALID_LSN, Lsn
from ..remedies import RESYNC, name_table
from ..schema import ReplicatedTableSchema
from ..schema_policy import Target
from ..stores.contract import PipelineStore
from ..stores.records import APPLY, Worker
from ..table_state import PERSISTED, State, TableState, advance
from .copy_progress import CopyProgress
from .copy_records import is_of_copy, stored_handoff
from .failpoint import reach
from .retries import Retries
from .schema_following import ColumnListChanged
from .spans import Span
from .table_policies import TablePolicies

__all__ = ["Table", "Tables"]

_COPIED = frozenset({State.FINISHED_COPY, State.SYNC_WAIT, State.CATCHUP, State.SYNC_DONE, State.READY})

_END = Lsn((1 << 64) - 1)

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
    recorded: Lsn | None = None
    """What the destination's record of it should say since the last write; None: nothing new."""
    acknowledged: Lsn | None = None
    """What the store has of that. A destination that says less was put back to an earlier state."""
    keeps_record: bool | None = None
    """Whether the destination keeps a record at all; None: not asked yet."""
    pending: bool = False
    """Whether the destination has accepted something that is not durable yet."""
    whole_only: bool = False
    """Whether its next copy must be under one snapshot: changes have overtaken a copy by key ranges."""
    wait_for_writers: bool = False
    """Whether its copy must wait for transactions that write to it: what they wrote before it was published is not
    sent, and not in a snapshot that does not show them."""
    described_at: float = 0.0
    """When its copy looked at the publication, by the monotonic clock; 0: before this life."""
    left_at: Lsn | None = None
    """It has left the publication, and is forgotten once everything before this is applied."""
    busy: bool = False
    resync_asked: bool = False
    changes: int = 0
    """Changes applied in this life, before folding."""
    retries: Retries = field(default_factory=Retries)
    copy: CopyProgress = field(default_factory=CopyProgress)

    target: Target = field(init=False)
    """What it is at the destination."""

    def __post_init__(self) -> None:
        self.target = Target.same(self.schema)

    @property
    def id(self) -> int:
        return self.schema.table.id

    @property
    def name(self) -> str:
        return str(self.schema.table.name)

    @property
    def stopped(self) -> bool:
        """Whether it has failed, and somebody has to decide what becomes of it."""
        return self.state.state is State.ERRORED and self.retries.due_at is None

    def become(self, schema: ReplicatedTableSchema, target: Target | None = None) -> None:
        """It looks like this from now on, and the same at the destination unless that is another."""
        self.schema, self.target = schema, target or Target.same(schema)


class Tables:
    """All of them. Every move is checked against `table_state` and stored before anyone acts on it."""

    def __init__(
        self,
        store: PipelineStore,
        retries: Callable[[], Retries] = Retries,
        policies: TablePolicies | None = None,
        destination: str = "",
    ) -> None:
        self._store = store
        self.policies = policies or TablePolicies(SchemaChangesConfig())
        self._retries = retries
        self._destination = destination
        """The name of the destination; empty if the pipeline has only one."""
        self._lock = threading.RLock()
        self._tables: dict[int, Table] = {}
        """Never changed in place: whoever looks need not wait for the lock, which is held while the store writes."""

    def load(
        self,
        published: Sequence[ReplicatedTableSchema],
        destination: Destination,
        spool_holds: Callable[[Lsn], bool] = lambda _: True,
        older_than_slot: Collection[int] = frozenset(),
    ) -> None:
        """Take the publication's tables as the store knows them. Those that left it are `leaving`.

        A table of which the destination has less than it had acknowledged is taken from there, if the spool holds what
        follows; if not, it is copied again.

        `older_than_slot`: tables that were published before the slot was created, in this life. The creation has waited
        for all transactions that wrote to them before, so their copies need not.
        """
        states, acknowledged = self._store.get_table_states(), self._store.get_acknowledged()
        wanted = {schema.table.id for schema in published}
        left = self._left({*states} - wanted)
        for table_id, metadata in self._store.get_all_destination_metadata().items():
            self.policies.heard_of(table_id, metadata.destination_table_id)
        tables: dict[int, Table] = {}
        self._store.update_table_states(
            {s.table.id: TableState(State.INIT) for s in published if s.table.id not in states}
        )
        for schema in (*published, *left):
            table = self._load(schema, states.get(schema.table.id, TableState(State.INIT)))
            table.acknowledged = acknowledged.get(table.id)
            if table.copied:
                self._find(table, destination, spool_holds if table.id in wanted else None)
            # The store does not tell whether the slot is new: it may have been lost, or reset.
            table.wait_for_writers = not table.copied and table.id not in older_than_slot
            tables[table.id] = table
        for schema in left:
            # Until when, the first look at the publication says.
            tables[schema.table.id].left_at = _END
        self._tables = tables

    def _left(self, gone: Iterable[int]) -> list[ReplicatedTableSchema]:
        """What tables that left were at last. One of which nothing is known is forgotten at once."""
        left = []
        for table_id in gone:
            version = self._store.get_table_schema(table_id, _END)
            if version is None:
                self._store.delete_table(table_id)
            else:
                left.append(version.schema)
        return left

    def _load(self, schema: ReplicatedTableSchema, state: TableState) -> Table:
        table = Table(schema, state, retries=self._retries())
        if state.retry_policy in (None, RetryPolicy.TIMED):
            table.retries.succeeded()
        table.copied = self._is_copied(schema.table.id, state)
        if not table.copied:
            table.position = table.written = self._copy_position(table)
        else:
            own = self._store.get_progress(Worker(table.id))
            table.own_progress = own is not None or state.state is not State.READY
        return table

    def _find(self, table: Table, destination: Destination, spool_holds: Callable[[Lsn], bool] | None) -> None:
        """Take a copied table where the destination has it. A name that it cannot have is its own failure alone.

        `spool_holds` is None for a table that left the publication: what the destination has of it does not matter.
        """
        schema = self._last_seen(table)
        try:
            applied, parts = destination.applied_lsn(schema), destination.copied_parts(schema)
        except ConfigError as error:
            self._take_at(table, None)
            if table.state.state is not State.ERRORED:
                self.fail(table, error)
            return
        self._take_at(table, applied)
        if spool_holds is None:
            return
        lost = applied is None and parts == frozenset()
        if self._has_other_copy(table, parts):
            msg = "the destination has another copy of the table than the store knows: the table is copied again"
            _log.warning(msg, table=table.name)
        elif not (lost or self._was_put_back(table, applied)) or self.go_back(table, applied, parts, spool_holds):
            return
        table.whole_only = True
        self.start_over(table)

    def _take_at(self, table: Table, applied: Lsn | None) -> None:
        self.place(table, self._stored_position(table, applied))
        table.handoff = stored_handoff(self._store, table.schema, table.position)

    def _is_copied(self, table_id: int, state: TableState) -> bool:
        """Whether its rows stand at the destination; of a table in error, by what stood before the errors."""
        if state.state is not State.ERRORED:
            return state.state in _COPIED
        history = [entry.state.state for entry in self._store.get_table_state_history(table_id)]
        before = [state for state in history if state is not State.ERRORED]
        return bool(before) and before[-1] in _COPIED

    def was_copied(self, table: Table) -> bool:
        """Whether it stood at the destination once, by its history: what readers see there shall stay until all that
        takes its place is there, not only a first range. The store knows it after a crash too.
        """
        return any(entry.state.state in _COPIED for entry in self._store.get_table_state_history(table.id))

    def _copy_position(self, table: Table) -> Lsn:
        """From where a copy by key ranges, which goes on when a worker is free, needs the spool to be kept."""
        copy = None if table.state.state is State.INIT else self._store.get_copy(table.id)
        return INVALID_LSN if copy is None or copy[0].one_snapshot else copy[0].start_lsn

    def _stored_position(self, table: Table, applied: Lsn | None) -> Lsn:
        """The furthest that store and destination have on record: none of them is ever ahead of the truth.

        A table with progress of its own is not where the apply loop is, even if it is called Ready: an operator may
        have rolled it back from Errored.
        """
        own = self._store.get_progress(Worker(table.id))
        known = [table.state.lsn if own is None else own, applied]
        if own is None and table.state.state is State.READY:
            known.append(self._store.get_progress(APPLY))
        copy = self._store.get_copy(table.id)
        if copy is not None:
            known.append(copy[0].start_lsn)
        return max((lsn for lsn in known if lsn is not None), default=INVALID_LSN)

    def _was_put_back(self, table: Table, applied: Lsn | None) -> bool:
        """Whether the destination has less of the table than it had acknowledged, or what is older than its copy."""
        if table.acknowledged is not None:
            return applied is None or applied < table.acknowledged
        copy = self._store.get_copy(table.id)
        return applied is not None and copy is not None and applied < copy[0].start_lsn

    def _has_other_copy(self, table: Table, parts: frozenset[int] | None) -> bool:
        """Return whether the destination holds rows of another copy than the store has recorded.

        Then one of the two was restored from a backup. The destination's LSN does not show which changes its rows
        include, because that depends on the snapshot of the copy.
        """
        copy = self._store.get_copy(table.id)
        if copy is None or not copy[1] or not parts:
            return False
        return not is_of_copy(copy[1], parts, accept_old_numbers=True)

    def go_back(
        self,
        table: Table,
        applied: Lsn | None,
        parts: frozenset[int] | None,
        spool_holds: Callable[[Lsn], bool],
    ) -> bool:
        """The destination has the table as of an earlier position: let it catch up from there.

        False if it cannot: nothing is there, or what is there is of an earlier copy, or the spool does not reach back.
        """
        copy = self._store.get_copy(table.id)
        begun = INVALID_LSN if copy is None else copy[0].start_lsn
        acknowledged = None if table.acknowledged is None else str(table.acknowledged)
        found = None if applied is None else str(applied)
        other = self._has_other_copy(table, parts)
        if applied is None or applied < begun or other or not spool_holds(applied):
            msg = "the destination was put back to an earlier state: the table is copied again"
            _log.warning(msg, table=table.name, found=found, acknowledged=acknowledged)
            return False
        msg = "the destination was put back to an earlier state: the table is caught up from the spool"
        _log.warning(msg, table=table.name, found=found, acknowledged=acknowledged)
        with self._lock:
            # The position first: a crash must not leave a table that says it stands further.
            self._store.delete_progress(Worker(table.id))
            self._store.update_progress(Worker(table.id), applied)
            table.own_progress, table.pending, table.recorded = True, False, None
            self.place(table, applied)
            table.handoff = stored_handoff(self._store, table.schema, applied)
            if table.state.state is not State.ERRORED:
                reason = f"the destination was put back from {acknowledged} to {found}"
                hint = "nothing to do: the table is caught up"
                self._move([(table, TableState(State.ERRORED, None, reason, hint, RetryPolicy.TIMED))])
                table.retries.succeeded()
            self._store.acknowledge({table.id: applied})
            table.acknowledged = applied
        return True

    def acknowledge(self, tables: Iterable[Table], destination: Destination) -> None:
        """Store what the destination has recorded with the writes since the last call, all durable by now."""
        written = [table for table in tables if table.recorded is not None]
        for table in written:
            if table.keeps_record is None:
                table.keeps_record = destination.applied_lsn(table.target.schema) is not None
        kept = {table.id: table.recorded for table in written if table.keeps_record and table.recorded is not None}
        if kept:
            self._store.acknowledge(kept)
        for table in written:
            table.acknowledged, table.recorded = kept.get(table.id), None

    def _last_seen(self, table: Table) -> ReplicatedTableSchema:
        """The table by the last version on record, under whose name the destination may have it."""
        version = self._store.get_table_schema(table.id, Lsn((1 << 64) - 1))
        return table.schema if version is None else version.schema

    # -- looking ------------------------------------------------------------------------------------------------

    def all(self) -> list[Table]:
        return list(self._tables.values())

    def named(self, name: str) -> Table:
        for table in self.all():
            if name in (table.name, table.schema.table.name.name) or name == table.schema.table.name.quoted:
                return table
        raise TableNotFound(f"no table {name} in this pipeline")

    def knows(self, table_id: int) -> bool:
        return table_id in self._tables

    def leaving(self) -> list[Table]:
        return [table for table in self.all() if table.left_at is not None]

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

    def add(self, schemas: Sequence[ReplicatedTableSchema], being_written: frozenset[int]) -> None:
        """Take up tables that joined the publication: they are copied, as at the start.

        `being_written`: tables to which transactions wrote that had not ended when they were published already.
        """
        with self._lock:
            self._store.update_table_states({schema.table.id: TableState(State.INIT) for schema in schemas})
            added = {}
            for schema in schemas:
                written = not being_written.isdisjoint((schema.table.id, *schema.table.leaves))
                table = Table(schema, TableState(State.INIT), wait_for_writers=written, retries=self._retries())
                added[table.id] = table
            self._tables = {**self._tables, **added}

    def remove(self, table: Table) -> None:
        """Forget a table that left the publication."""
        with self._lock:
            self._store.delete_table(table.id)
            self.policies.forget(table.id)
            self._tables = {table_id: other for table_id, other in self._tables.items() if table_id != table.id}

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

    def place(self, table: Table, position: Lsn) -> None:
        """The table stands here, durably and with nothing written beyond: it looks as it did at this position."""
        table.position = table.written = position
        before = Lsn(max(0, position - 1))
        version = self._store.get_table_schema(table.id, before)
        if version is None:
            return
        table.become(version.schema, version.target)

    def altering(self, table: Table, spans: Sequence[Span]) -> None:
        """Before a write: keep the versions it leads to, so that a restart reads on with the one it finds."""
        begun = [(span.began, span.version) for span in spans if span.began is not None]
        for lsn, version in begun:
            other = None if version.target.is_same(version.schema) else version.target
            self._store.store_table_schema(version.schema, lsn, other)
        metadata = self._store.get_destination_metadata(table.id) if begun else None
        if metadata is not None:
            lsn, version = begun[-1]
            self._store.store_destination_metadata(table.id, metadata.applying(lsn, version.target.schema.mask))
            reach("alter.after_applying", table.name)

    def altered(self, table: Table, spans: Sequence[Span]) -> None:
        """After it: the destination's table looks like the last of them."""
        begun = [(span.began, span.version) for span in spans if span.began is not None]
        if not begun:
            return
        reach("alter.before_applied", table.name)
        metadata = self._store.get_destination_metadata(table.id)
        if metadata is not None:
            self._store.store_destination_metadata(table.id, metadata.applied())
        for lsn, version in begun:
            _log.info("schema changed", table=table.name, lsn=str(lsn), columns=len(version.schema.columns))
        version = begun[-1][1]
        table.become(version.schema, version.target)
        self._store.prune_table_schemas({table.id: Lsn(max(0, table.position - 1))})

    def in_step(self, tables: Sequence[Table]) -> None:
        """These stand where the apply loop stands, whose progress is stored: they need none of their own."""
        with self._lock:
            done = [table for table in tables if table.state.state is State.SYNC_DONE]
            self._move([(table, TableState(State.READY)) for table in done])
            reach("apply.after_ready")
            self._store.delete_progress(*(Worker(table.id) for table in tables))
            for table in tables:
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
            table.pending = False
            self.place(table, table.position)
            reason = str(error) if policy is error.retry else f"{error} (tried {table.retries.attempts} times)"
            hint = name_table(error.hint, table.name, self._destination)
            self._move([(table, TableState(State.ERRORED, None, reason, hint, policy))])
            reach("errored.after_state", table.name)
        log = _log.warning if policy is RetryPolicy.TIMED else _log.error
        log("table failed", table=table.name, kind=error.kind, error=str(error), hint=hint, retry=policy.value)

    def start_over(self, table: Table) -> None:
        """Back to Init: the table is copied again."""
        with self._lock:
            if table.state.state is not State.INIT:
                self._move([(table, TableState(State.INIT))])
            table.copied, table.handoff, table.pending = False, None, False
            table.recorded = table.acknowledged = None
            table.position = table.written = INVALID_LSN
            if table.resync_asked:
                # Only then: a copy that fails again and again starts over each time, and its failures must count.
                table.retries.succeeded()
            table.resync_asked = False

    def copy_again(self, table: Table, error: HeadraceError) -> None:
        """Back to Init, because the stream does not tell everything that happened to the table's rows."""
        _log.warning("the table is copied again", table=table.name, error=str(error), detail=error.detail)
        table.whole_only = True
        table.wait_for_writers |= isinstance(error, ColumnListChanged)
        self.start_over(table)

    def roll_back(self, table: Table) -> None:
        """Take a failed table out of Errored and try again at once. Raises PipelineStateError for any other table."""
        with self._lock:
            if table.state.state is not State.ERRORED:
                msg = f"table {table.name} has not failed: it is in state {table.state.state.value}"
                raise PipelineStateError(
                    msg, hint=f"to copy it again: {name_table(RESYNC, table.name, self._destination)}"
                )
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
