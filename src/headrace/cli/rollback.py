"""`headrace rollback`: take a table that failed out of its error and try again."""

from __future__ import annotations

from typing import Annotated

import typer

from ..config.load import load_pipeline_config
from ..errors import PipelineStateError
from ..remedies import RESYNC, name_table
from ..stores import PipelineStore
from ..stores.requests import RequestKind
from ..table_state import State
from .asking import ask, at_destination, find_table, known_tables, look_at_source, waited, when
from .exit_code import ExitCode
from .failing import errors_shown, fail
from .known_store import required_stores
from .resync import OneDestination, Wait
from .run import ConfigPath
from .terminal import say

__all__ = ["rollback"]

_Table = Annotated[
    str, typer.Argument(metavar="TABLE", show_default=False, help="The table, as schema.table or by its own name.")
]
_ToInit = Annotated[bool, typer.Option("--to-init", help="Start the table over: it is copied again, failed or not.")]


def rollback(
    config: ConfigPath,
    table: _Table,
    to_init: _ToInit = False,
    wait: Wait = False,
    destination: OneDestination = None,
) -> None:
    """Take a failed table out of its error, back to where it was, and try again.

    A table in error waits with its position kept. Mend the cause, then
    roll it back: it catches up from that position, with no new copy.
    headrace status shows the cause and what to do about it.

    With --to-init the table starts over and is copied again; this is
    what headrace resync does.

    For example:

        headrace status pipeline.yaml

        headrace rollback pipeline.yaml public.orders

        headrace rollback pipeline.yaml public.orders --to-init --wait

    Exit codes: 0 asked, and with --wait done; 1 with --wait: the table
    failed again; 2 wrong usage or configuration, no such table, or one
    that has not failed; 3 could not open the store; 130 no longer
    waiting, the request stands.
    """
    with errors_shown(config):
        settings = load_pipeline_config(config)
        with required_stores(settings, destination) as stores:
            source = look_at_source(settings)
            known = [(store, known_tables(store, source)) for store in stores.values()]
            names = {table_id: name for _, tables in known for table_id, name in tables.items()}
            table_id = find_table(table, names, unasked=source.error)
            concerned = [store for store, tables in known if table_id in tables]
            if not to_init:
                concerned = _failed(concerned, table_id, str(names[table_id]))
            kind = RequestKind.ROLLBACK_TO_INIT if to_init else RequestKind.ROLLBACK
            asked = [(store, ask(store, kind, [table_id])) for store in concerned]
            what = f"start {names[table_id]} over" if to_init else f"try {names[table_id]} again"
            where = at_destination(destination)
            say(f"asked pipeline {settings.id} to {what}{where}: {when(source.running)}")
            if wait:
                raise typer.Exit(waited(asked))


def _failed(stores: list[PipelineStore], table_id: int, name: str) -> list[PipelineStore]:
    """Those where the table has failed; leaves if there is none."""
    states = [(store, store.get_table_states()[table_id].state) for store in stores]
    failed = [store for store, state in states if state is State.ERRORED]
    if not failed:
        msg = f"table {name} has not failed: it is in state {states[0][1].value}"
        hint = f"nothing to do; to copy it again: {name_table(RESYNC, name)}"
        fail(PipelineStateError(msg, hint=hint), ExitCode.USAGE)
    return failed
