"""`headrace slot drop`: give up a pipeline's replication slot, knowingly."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from ..config.load import load_pipeline_config
from ..config.pipeline import InvalidatedSlotBehavior, PipelineConfig, StoreKind
from ..errors import ConfigError, SlotInUse, StoreError
from ..postgres.slots import SlotState, drop_slot, slot_state
from ..postgres.translation import translated_errors
from ..stores import APPLY, PipelineStore
from ..table_state import State
from .connecting import connected
from .exit_code import ExitCode
from .failing import errors_shown, fail
from .figures import size
from .known_store import known_stores
from .run import ConfigPath
from .terminal import on_terminal

__all__ = ["drop", "slot_app"]

slot_app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="The replication slot of a pipeline.")

_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")]

_READER = """SELECT coalesce(pg_catalog.host(client_addr), 'a local socket'), application_name
FROM pg_catalog.pg_stat_activity WHERE pid = %s"""
_RETAINED = """SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), %s::pg_catalog.pg_lsn)::int8
WHERE NOT pg_catalog.pg_is_in_recovery()"""


@slot_app.command()
def drop(config: ConfigPath, yes: _Yes = False) -> None:
    """Drop the pipeline's replication slot, so that the server keeps no more WAL for it.

    For a pipeline that will not run again, or one that is to begin anew.
    What the server has not delivered by then is lost to the pipeline.
    Refuses while somebody reads the slot.

    For example:

        headrace slot drop pipeline.yaml

        headrace slot drop pipeline.yaml --yes

    Exit codes: 0 dropped, or there was none; 1 somebody reads it, or you
    said no; 2 wrong usage or configuration; 3 could not connect.
    """
    with errors_shown():
        settings = load_pipeline_config(config)
        with connected(settings.pg_connection, "slot", pipeline=settings.id) as connection:
            state = slot_state(connection, settings.slot_name)
            if state is None:
                typer.echo(f"there is no replication slot {settings.slot_name}: nothing to drop")
                return
            _require_ours(state, settings)
            _require_idle(state, connection)
            typer.echo(f"replication slot {state.name} holds {size(_retained(connection, state))} of WAL on the server")
            typer.echo(_consequence(settings))
            _confirm(state, yes)
            drop_slot(connection, settings.slot_name, timeout_s=0)
            typer.echo(f"dropped replication slot {state.name}")


def _require_ours(state: SlotState, config: PipelineConfig) -> None:
    if state.database != config.pg_connection.name or state.plugin != "pgoutput":
        msg = f"replication slot {state.name} is not this pipeline's: it is {state.plugin or 'a physical one'}"
        place = f"of database {state.database}" if state.database else None
        raise ConfigError(msg, detail=place, hint="correct slot_name, or drop it with pg_drop_replication_slot")


def _require_idle(state: SlotState, connection: psycopg.Connection[Any]) -> None:
    if not state.active:
        return
    with translated_errors("cannot read who reads the slot"):
        row = connection.execute(_READER, (state.active_pid,)).fetchone()
    reader = f" ({row[1]} from {row[0]})" if row is not None else ""
    msg = f"replication slot {state.name} is being read by server process {state.active_pid}{reader}"
    end = f"SELECT pg_terminate_backend({state.active_pid})"
    hint = f"stop the pipeline first; what hangs there for good is ended by {end}"
    fail(SlotInUse(msg, hint=hint), ExitCode.NOT_WELL)


def _retained(connection: psycopg.Connection[Any], state: SlotState) -> int | None:
    if state.restart_lsn is None:
        return None
    with translated_errors("cannot read the WAL position"):
        row = connection.execute(_RETAINED, (str(state.restart_lsn),)).fetchone()
    return None if row is None else int(row[0])


def _consequence(config: PipelineConfig) -> str:
    """What the next start will do, as `pipeline.source` decides it."""
    if config.invalidated_slot_behavior is InvalidatedSlotBehavior.RECREATE:
        return "without it, the next start makes a new slot and copies all tables again"
    try:
        with known_stores(config) as stores:
            begun = any(_begun(store) for store in stores.values() if store is not None)
    except StoreError:
        return (
            "without it, the next start copies all tables if none has been copied yet, else it fails, unless "
            "invalidated_slot_behavior is recreate"
        )
    if not begun or config.store.kind is StoreKind.MEMORY:
        return "no table has been copied yet: the next start makes a new slot and begins"
    return (
        "tables have been copied: without it, the next start FAILS. To begin anew after dropping it, set "
        "invalidated_slot_behavior to recreate (all tables are copied again), or remove the pipeline's store and spool"
    )


def _begun(store: PipelineStore) -> bool:
    begun = any(state.state is not State.INIT for state in store.get_table_states().values())
    return begun or store.get_progress(APPLY) is not None


def _confirm(state: SlotState, yes: bool) -> None:
    if yes:
        return
    if not on_terminal():
        msg = f"dropping replication slot {state.name} needs to be confirmed, and this is no terminal"
        raise ConfigError(msg, hint="give --yes")
    if not typer.confirm(f"Drop {state.name}?"):
        raise typer.Exit(ExitCode.NOT_WELL)
