"""Before a pipeline starts: the publication's tables, and the slot, made or found or known to be lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import structlog

from ..config.pipeline import InvalidatedSlotBehavior, PipelineConfig, PipelineMode
from ..destinations.contract import SourceIdentity
from ..errors import (
    ConfigError,
    HeadraceError,
    PipelineStateError,
    PublicationNotFound,
    SlotAlreadyExists,
    SlotDropTimeout,
    SlotError,
    SlotInvalidated,
    SlotNotFound,
    SlotUndecodable,
    SourceError,
    SourceSchemaError,
    SourceWentBack,
    SpoolGap,
    SpoolInUse,
)
from ..postgres.catalog import source_identity
from ..postgres.connection import connect
from ..postgres.publications import publication_outline, published_tables, read_publication
from ..postgres.slots import (
    DROP_TIMEOUT_S,
    SlotHolder,
    can_have_failover_slots,
    create_slot,
    drop_slot,
    require_own,
    slot_holder,
    slot_state,
    try_lock_slot,
)
from ..postgres.source.install import prepare_source
from ..postgres.translation import translated_errors
from ..schema import ReplicatedTableSchema
from ..spool import Spool
from ..spool.owner import SpoolOwner, locked, owner_of
from ..stores.contract import LeasedStore, PipelineStore, StateStore
from ..stores.records import APPLY
from ..table_state import State

__all__ = ["LOST_CHANGES", "Source", "await_publication", "recreate_slot"]

_POLL_S = 1.0
_TURN_POLL_S = 0.2
_READER_PATIENCE_S = 3.0
"""How long the server may take to notice that this run's own reader of the slot has ended."""

LOST_CHANGES = (SlotInvalidated, SlotNotFound, SlotUndecodable, SourceWentBack, SpoolGap)
"""Errors of a slot that will never deliver again, of a source that was put back, and of a spool that lacks what the
slot no longer has."""

_REMEDY = (
    "its changes since then are lost: set invalidated_slot_behavior to recreate, which makes a new slot and copies all "
    "tables again; or, if the slot was dropped on purpose, remove store and spool first"
)

_log = structlog.get_logger("headrace.source")


@dataclass(frozen=True, slots=True)
class Source:
    """What a pipeline reads from."""

    config: PipelineConfig

    def tables(self) -> list[ReplicatedTableSchema]:
        """The publication's tables. Raises PublicationNotFound, or SourceSchemaError for one without tables."""
        with connect(self.config.pg_connection, "pipeline", pipeline=self.config.id) as connection:
            read_publication(connection, self.config.publication_name)
            tables = list(published_tables(connection, self.config.publication_name))
        self._require_known(tables)
        if not tables:
            msg = f"publication {self.config.publication_name} has no tables"
            raise SourceSchemaError(msg, hint="ALTER PUBLICATION … ADD TABLE …")
        return tables

    def identity(self, store: StateStore) -> SourceIdentity:
        """The cluster's system identifier and the database's name, for the records of destinations.

        After an upgrade that the pipeline was adopted for, it is the identifier that the cluster had in the beginning,
        by the spool or, if that was lost, by the store.
        """
        with connect(self.config.pg_connection, "pipeline", pipeline=self.config.id) as connection:
            system_id, database = source_identity(connection)
        owner = self._spool_owner()
        if owner is not None and owner == SpoolOwner(system_id, database, self.config.slot_name):
            system_id = owner.first_system_id
        return SourceIdentity(store.get_first_system_id(system_id) or system_id, database)

    def keep_first_system_id(self, store: StateStore) -> None:
        """Store what the spool knows of upgrades: earlier versions have adopted clusters in the spool alone."""
        owner = self._spool_owner()
        if owner is not None and owner.former_system_ids:
            first = store.get_first_system_id(owner.first_system_id) or owner.first_system_id
            store.store_first_system_id(owner.system_id, first)

    def _spool_owner(self) -> SpoolOwner | None:
        spool = self.config.spool_config()
        if "://" not in spool.uri and not Path(spool.uri).exists():
            return None  # and none is made for a look at it
        return owner_of(Spool.open(spool).place)

    def install(self) -> None:
        """Put into the source what tells of DDL, as the settings say."""
        if self.config.mode is not PipelineMode.COPY_ONLY:
            with connect(self.config.pg_connection, "pipeline", pipeline=self.config.id) as connection:
                prepare_source(connection, self.config.source.install)

    def _require_known(self, tables: list[ReplicatedTableSchema]) -> None:
        names = {str(schema.table.name) for schema in tables}
        unknown = [name for name in self.config.table_sync_copy.tables if name not in names]
        if unknown:
            msg = f"table_sync_copy.tables names {', '.join(unknown)}, which the publication does not have"
            raise ConfigError(msg, detail=f"it has {', '.join(sorted(names))}")

    def require_own_slot(self) -> None:
        """Raise ConfigError if the slot's name is taken by a slot of another database or kind."""
        if self.config.mode is PipelineMode.COPY_ONLY:
            return
        with connect(self.config.pg_connection, "pipeline", pipeline=self.config.id) as connection:
            state = slot_state(connection, self.config.slot_name)
            if state is not None:
                require_own(state, connection.info.dbname)

    def prepare_slot(self, stores: Sequence[PipelineStore], stopping: threading.Event | None = None) -> bool:
        """Make the slot, or see that it is there and whole. A missing one is only made where nothing is lost by it.

        Each destination has a store of its own. Return whether the slot was created now, by this run.
        """
        if self.config.mode is PipelineMode.COPY_ONLY:
            return False
        with connect(self.config.pg_connection, "pipeline", pipeline=self.config.id) as connection:
            if self._has_whole_slot(connection):
                return False
            if not _await_turn(connection, self.config.slot_name, stopping or threading.Event()):
                return False
            if self._has_whole_slot(connection):
                return False
            lost = slot_state(connection, self.config.slot_name) is not None
            problem = self._problem(stores, lost=lost)
            if problem is None:
                return self._create_first(connection)
            if self.config.invalidated_slot_behavior is not InvalidatedSlotBehavior.RECREATE:
                raise problem
            return _recreate(connection, self.config, stores, problem)

    def _has_whole_slot(self, connection: psycopg.Connection[Any]) -> bool:
        state = slot_state(connection, self.config.slot_name)
        if state is not None:
            require_own(state, connection.info.dbname)
        return state is not None and not state.lost

    def _create_first(self, connection: psycopg.Connection[Any]) -> bool:
        """Create a slot that nothing depends on yet; return False if another run is at work in the spool."""
        try:
            self._forget_leftovers(connection)
        except SpoolInUse as error:
            _log.info("another run uses the spool: waiting for it", slot=self.config.slot_name, error=str(error))
            return False
        return _create_slot(connection, self.config)

    def _forget_leftovers(self, connection: psycopg.Connection[Any]) -> None:
        """Empty the spool of a slot that is gone and that no table depends on, such as an interrupted recreation left.

        A spool of another owner is left alone: the receiver refuses it.
        """
        spool = Spool.open(self.config.spool_config())
        if spool.is_empty():
            return
        with translated_errors("cannot read the system identifier"):
            row = connection.execute(
                "SELECT system_identifier::pg_catalog.text, pg_catalog.current_database()"
                " FROM pg_catalog.pg_control_system()"
            ).fetchone()
        assert row is not None
        if owner_of(spool.place) == SpoolOwner(row[0], row[1], self.config.slot_name):
            _log.warning(
                "emptying the spool: its slot is gone, and no table has been copied", slot=self.config.slot_name
            )
            with locked(spool.place, self.config.slot_name):
                spool.forget()

    def slot_holder(self) -> SlotHolder | None:
        """The process that reads the slot now; None: nobody does, or there is no slot."""
        with connect(self.config.pg_connection, "pipeline", pipeline=self.config.id) as connection:
            return slot_holder(connection, self.config.slot_name)

    def require_idle_slot(self) -> None:
        """Refuse to copy over tables that a running pipeline streams to. Raises PipelineStateError."""
        self._refuse_if_running("stop it first; to copy tables again while it runs, use the command resync")

    def require_stopped(self, owner: str) -> None:
        """Refuse to replay into tables that a running pipeline streams to. Raises PipelineStateError.

        `owner` is the source that the destination's record names. If the source cannot be asked, nothing is refused:
        then a run of the pipeline that is at work is fenced, and says so.
        """
        hint = (
            "stop it first; or replay into tables of their own, with a configuration that has another id and another "
            "destination"
        )
        try:
            self._refuse_if_running(hint)
        except SourceError as error:
            msg = "the source cannot be asked whether the pipeline that owns the tables runs; if it does, it will end"
            _log.warning(msg, owner=owner, error=str(error))

    def _refuse_if_running(self, hint: str) -> None:
        holder = self.slot_holder()
        if holder is not None:
            msg = f"pipeline {self.config.id} is running: its replication slot {self.config.slot_name} is being read"
            raise PipelineStateError(msg, detail=f"by {holder}", hint=hint)

    def _problem(self, stores: Sequence[PipelineStore], *, lost: bool) -> SlotError | None:
        """Why a slot cannot simply be made; None when nothing depends on the one that was."""
        name = self.config.slot_name
        if lost:
            return SlotInvalidated(f"replication slot {name} is invalidated", hint=_REMEDY)
        for store in stores:
            begun = [state for state in store.get_table_states().values() if state.state is not State.INIT]
            if begun or store.get_progress(APPLY) is not None:
                msg = f"replication slot {name} does not exist, but tables have been copied"
                return SlotNotFound(msg, hint=_REMEDY)
        return None


def await_publication(config: PipelineConfig, stopping: threading.Event) -> bool:
    """Until the publication is there again, with tables: True; False when the pipeline is told to stop."""
    while not stopping.wait(_POLL_S):
        try:
            with connect(config.pg_connection, "pipeline", pipeline=config.id) as connection:
                if publication_outline(connection, config.publication_name):
                    return True
        except PublicationNotFound:
            continue
        except SourceError as error:
            _log.warning("could not look for the publication", error=str(error))
    return False


def recreate_slot(
    config: PipelineConfig, stores: Sequence[PipelineStore], problem: HeadraceError, stopping: threading.Event
) -> bool:
    """Give up what the old slot had: all tables start over, with an empty spool and a new slot.

    Runs that meet a problem at the same time take turns. If another has made a slot by then, or reads it, everything
    stays as it is, and False is returned: the next life waits for that slot, and decides with the slot in hand.
    """
    with connect(config.pg_connection, "pipeline", pipeline=config.id) as connection:
        return _await_turn(connection, config.slot_name, stopping) and _recreate(connection, config, stores, problem)


def _await_turn(connection: psycopg.Connection[Any], name: str, stopping: threading.Event) -> bool:
    """Wait until no other run is about to create or drop the slot; return False if the pipeline is to stop."""
    while not try_lock_slot(connection, name):
        if stopping.wait(_TURN_POLL_S):
            return False
    return True


def _recreate(
    connection: psycopg.Connection[Any],
    config: PipelineConfig,
    stores: Sequence[PipelineStore],
    problem: HeadraceError,
) -> bool:
    """Recreate the slot, whose name is locked, unless it is another run's by now. Return whether it was created."""
    name, spool = config.slot_name, Spool.open(config.spool_config())
    state = slot_state(connection, name)
    whole = state is not None and not state.lost
    if whole and isinstance(problem, (SlotNotFound, SlotInvalidated)):
        _log.info("another run has created the slot", slot=name)
        return False
    if whole and not _await_idle(connection, name):
        _log.warning("another run reads the slot: waiting for it", slot=name, error=str(problem))
        return False
    try:
        # Without the lock, a run in the same data directory could be about to read the slot.
        with locked(spool.place, name):
            _log.warning("all tables are copied again, from a new slot", error=str(problem), slot=name)
            # The stores first: tables that start over need neither slot nor spool.
            _reset_stores(stores)
            # Then the slot: interrupted before, a start meets the same problem; interrupted after, it empties the
            # spool.
            if state is not None:
                with suppress(SlotNotFound):
                    # The server ends the readers of a slot that it invalidates.
                    drop_slot(connection, name, timeout_s=0.0 if whole else DROP_TIMEOUT_S)
            spool.forget()
            return _create_slot(connection, config)
    except (SlotDropTimeout, SpoolInUse) as error:
        _log.warning("another run uses slot or spool: waiting for it", slot=name, error=str(error))
        return False


def _await_idle(connection: psycopg.Connection[Any], name: str) -> bool:
    """Wait a moment for the end of the slot's reader, which may be one that this run has just stopped."""
    deadline = time.monotonic() + _READER_PATIENCE_S
    while slot_holder(connection, name) is not None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_TURN_POLL_S)
    return True


def _reset_stores(stores: Sequence[PipelineStore]) -> None:
    for store in stores:
        if isinstance(store, LeasedStore):
            # Raises StoreInUse while another run is at work: it may be about to do the same.
            store.take_lease(lambda _: None)
        store.reset_for_resync()


def _create_slot(connection: psycopg.Connection[Any], config: PipelineConfig) -> bool:
    """Create the pipeline's slot, as a failover slot where the server can and the settings ask for it.

    Return False if another has created it: an operator, or a run of a version that does not take turns.
    """
    failover = config.source.failover_slot and can_have_failover_slots(connection)
    try:
        lsn = create_slot(connection, config.slot_name, failover=failover)
    except SlotAlreadyExists:
        _log.info("another run has created the slot", slot=config.slot_name)
        return False
    _log.info("slot created", slot=config.slot_name, lsn=str(lsn))
    return True
