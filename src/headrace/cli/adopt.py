"""`headrace adopt`: continue a pipeline after pg_upgrade, which gives its source a new system identifier."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from ..config.load import load_pipeline_config
from ..config.pipeline import PipelineConfig
from ..errors import ConfigError, SlotInUse
from ..lsn import INVALID_LSN, Lsn
from ..postgres.catalog import source_identity
from ..postgres.publications import published_tables
from ..postgres.slots import SlotState, require_usable
from ..replication.source_history import SourceHistory
from ..spool import Spool, SpoolPosition
from ..spool.name import IdleMark
from ..spool.owner import SpoolOwner, locked, owner_of
from ..spool.owner import adopt as adopt_spool
from .connecting import connected
from .exit_code import ExitCode
from .failing import errors_shown
from .known_store import known_stores
from .run import ConfigPath
from .terminal import on_terminal

__all__ = ["adopt"]

_COPY_AGAIN = (
    "if the source was moved in another way than by pg_upgrade, its changes cannot be followed: set "
    "invalidated_slot_behavior to recreate, and remove the spool and its slot, so that all tables are copied again"
)

_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")]


def adopt(config: ConfigPath, yes: _Yes = False) -> None:
    """Continue a pipeline after pg_upgrade, which gives the source a new system identifier.

    From Postgres 17 on, pg_upgrade migrates slots that have been read to
    the end. This command checks that the new cluster has the pipeline's
    slot in the same database, that its WAL continues after the end of the
    spool, and that tables kept their OIDs. It then records the new identity.
    The pipeline must not be running.

    For example:

        headrace adopt pipeline.yaml

        headrace adopt pipeline.yaml --yes

    Exit codes: 0 adopted, or there was nothing to do; 1 you said no; 2 wrong
    usage, or the new cluster does not continue the old one; 3 could not
    connect.
    """
    with errors_shown(config):
        settings = load_pipeline_config(config)
        with connected(settings.pg_connection, "adopt", pipeline=settings.id) as connection:
            system_id, database = source_identity(connection)
            spool = Spool.open(settings.spool_config())
            owner = owner_of(spool.place)
            if owner is None or owner == SpoolOwner(system_id, database, settings.slot_name):
                typer.echo("the spool belongs to this cluster: nothing to adopt")
                return
            _require_same_place(owner, database, settings)
            with locked(spool.place, settings.slot_name):
                slot = _idle_slot(connection, settings)
                _require_same_tables(connection, settings)
                position = spool.position()
                start = _start(slot, position)
                _confirm(owner, system_id, start, yes)
                _record_in_stores(settings, owner, system_id)
                _rewrite(spool, position, start, system_id)
    typer.echo(f"pipeline {settings.id} goes on with cluster {system_id} at {start}")


def _require_same_place(owner: SpoolOwner, database: str, config: PipelineConfig) -> None:
    if (owner.database, owner.slot) != (database, config.slot_name):
        raise ConfigError(
            f"the spool belongs to slot {owner.slot} of database {owner.database}, but this pipeline reads slot "
            f"{config.slot_name} of database {database}",
            hint="an upgrade changes neither name: correct pg_connection.name, slot_name or spool.uri",
        )


def _idle_slot(connection: psycopg.Connection[Any], config: PipelineConfig) -> SlotState:
    slot = require_usable(connection, config.slot_name)
    if slot.active:
        msg = f"replication slot {slot.name} is being read by server process {slot.active_pid}"
        raise SlotInUse(msg, hint="stop the pipeline first")
    return slot


def _require_same_tables(connection: psycopg.Connection[Any], config: PipelineConfig) -> None:
    """Refuse a cluster in which tables were created anew: pg_upgrade keeps their OIDs, a restored dump does not."""
    published = published_tables(connection, config.publication_name)
    with known_stores(config) as stores:
        for store in filter(None, stores.values()):
            known = {version.schema.table.id: version.schema.table.name for version in store.get_table_schemas()}
            for schema in published:
                table = schema.table
                if table.id not in known and table.name in known.values():
                    raise ConfigError(
                        f"table {table.name} has another OID than in the cluster that was read before",
                        hint=_COPY_AGAIN,
                    )


def _start(slot: SlotState, position: SpoolPosition | None) -> Lsn:
    """Where the slot goes on, which must be behind all that was read."""
    start = slot.confirmed_flush_lsn or INVALID_LSN
    if position is not None and start < position.covered:
        raise ConfigError(
            f"the slot goes on at {start}, but changes up to {position.covered} have been read from the old cluster",
            detail="the WAL of an upgraded cluster goes on behind that of the old one",
            hint=_COPY_AGAIN,
        )
    return start


def _confirm(owner: SpoolOwner, system_id: str, start: Lsn, yes: bool) -> None:
    typer.echo(
        f"the spool was read from cluster {owner.system_id}; slot {owner.slot} of cluster {system_id} goes on at "
        f"{start}.\nThis is right if pg_upgrade made the slot. One created by hand lacks what was written before it."
    )
    if yes:
        return
    if not on_terminal():
        msg = "to adopt another cluster needs to be confirmed, and this is no terminal"
        raise ConfigError(msg, hint="give --yes")
    if not typer.confirm("Adopt it?"):
        raise typer.Exit(ExitCode.NOT_WELL)


def _record_in_stores(config: PipelineConfig, owner: SpoolOwner, system_id: str) -> None:
    """Record by which identifier the destinations know the source, for a spool can be lost."""
    with known_stores(config, migrate=True) as stores:
        for store in filter(None, stores.values()):
            first = store.get_first_system_id(owner.system_id) or owner.first_system_id
            store.store_first_system_id(system_id, first)


def _rewrite(spool: Spool, position: SpoolPosition | None, start: Lsn, system_id: str) -> None:
    """Record the new identity last: interrupted before, the command can be repeated."""
    SourceHistory(spool.place).restart()
    if position is not None and start > position.covered:
        # pg_upgrade takes only slots along through which everything was read.
        spool.mark_idle(IdleMark(position.end, start), IdleMark(position.end, position.covered))
    adopt_spool(spool.place, system_id)
