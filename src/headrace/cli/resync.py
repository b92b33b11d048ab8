"""`headrace resync`: copy tables again, from the start."""

from __future__ import annotations

from typing import Annotated

import typer

from ..config.load import load_pipeline_config
from ..stores.requests import RequestKind
from .asking import ask, at_destination, find_table, known_tables, look_at_source, waited, when
from .failing import errors_shown
from .known_store import required_stores
from .run import ConfigPath
from .terminal import say

__all__ = ["OneDestination", "Wait", "resync"]

Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the pipeline has done it and the tables stream, or one failed.")
]
_Tables = Annotated[
    list[str],
    typer.Argument(metavar="TABLE...", show_default=False, help="Tables, as schema.table or by their own name."),
]
OneDestination = Annotated[
    str | None,
    typer.Option(
        "--destination", metavar="NAME", show_default="all", help="Of several destinations, the one that is meant."
    ),
]


def resync(config: ConfigPath, tables: _Tables, wait: Wait = False, destination: OneDestination = None) -> None:
    """Copy tables again, from the start, while the others stream on.

    The request is written to the pipeline's store. A running pipeline
    takes it up within seconds, one that does not run at its next start:
    the table's destination is dropped, the table copied, and its changes
    streamed from there. No slot is needed for it and nothing is lost.

    Use it for a table that differs from its source, that was changed at
    the destination by hand, or whose error cannot be mended in place.

    For example:

        headrace resync pipeline.yaml public.orders public.customers

        headrace resync pipeline.yaml orders --wait

        headrace resync pipeline.yaml orders --destination lake

    Exit codes: 0 asked, and with --wait done; 1 with --wait: a table
    failed; 2 wrong usage or configuration, or no such table; 3 could not
    open the store; 130 no longer waiting, the request stands.
    """
    with errors_shown(config):
        settings = load_pipeline_config(config)
        with required_stores(settings, destination) as stores:
            source = look_at_source(settings)
            known = {name: known_tables(store, source) for name, store in stores.items()}
            names = {table_id: name for tables_of in known.values() for table_id, name in tables_of.items()}
            # All are looked up before any is asked for.
            ids = list(dict.fromkeys(find_table(name, names, unasked=source.error) for name in tables))
            asked = [
                (store, ask(store, RequestKind.RESYNC, [table_id for table_id in ids if table_id in known[name]]))
                for name, store in stores.items()
            ]
            what = ", ".join(str(names[table_id]) for table_id in ids)
            where = at_destination(destination)
            say(f"asked pipeline {settings.id} to copy {what} again{where}: {when(source.running)}")
            if wait:
                raise typer.Exit(waited(asked))
