"""`headrace rollback`: take a table that failed out of its error and try again."""

from __future__ import annotations

from typing import Annotated

import typer

from ..config.load import load_pipeline_config
from ..errors import PipelineStateError
from ..stores.requests import RequestKind
from ..table_state import State
from .asking import ask, find_table, known_tables, look_at_source, waited, when
from .exit_code import ExitCode
from .failing import errors_shown, fail
from .known_store import required_store
from .resync import Wait
from .run import ConfigPath

__all__ = ["rollback"]

_Table = Annotated[
    str, typer.Argument(metavar="TABLE", show_default=False, help="The table, as schema.table or by its own name.")
]
_ToInit = Annotated[bool, typer.Option("--to-init", help="Start the table over: it is copied again, failed or not.")]


def rollback(config: ConfigPath, table: _Table, to_init: _ToInit = False, wait: Wait = False) -> None:
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
    with errors_shown():
        settings = load_pipeline_config(config)
        with required_store(settings) as store:
            source = look_at_source(settings)
            known = known_tables(store, source)
            table_id = find_table(table, known)
            state = store.get_table_states()[table_id].state
            if state is not State.ERRORED and not to_init:
                msg = f"table {known[table_id]} has not failed: it is in state {state.value}"
                hint = "nothing to do; to copy it again, use headrace resync"
                fail(PipelineStateError(msg, hint=hint), ExitCode.USAGE)
            kind = RequestKind.ROLLBACK_TO_INIT if to_init else RequestKind.ROLLBACK
            requests = ask(store, kind, [table_id])
            what = f"start {known[table_id]} over" if to_init else f"try {known[table_id]} again"
            typer.echo(f"asked pipeline {settings.id} to {what}: {when(source.running)}")
            if wait:
                raise typer.Exit(waited(store, requests))
