"""The `headrace` command."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from .adopt import adopt
from .check import check
from .copy import copy
from .demo import demo
from .init import init
from .new_destination import new_destination
from .replay import replay
from .resync import resync
from .rollback import rollback
from .run import run
from .slot import slot_app
from .source import source_app
from .status import status
from .tail import tail

__all__ = ["app"]

_HELP = """
Change data capture from Postgres, decoded column-wise.

A pipeline reads a [bold]publication[/bold] through a [bold]replication slot[/bold]. Begin by asking whether the server is ready:

    headrace check --source postgresql://replicator@db.example.com/shop --publication shop_pub

Or look at its changes as they happen:

    headrace tail postgresql://replicator@db.example.com/shop --publication shop_pub

Then write the pipeline's configuration, and run it:

    headrace init

    headrace run pipeline.yaml
"""  # noqa: E501

# Locals in a traceback would show connection parameters, the password among them.
app = typer.Typer(
    name="headrace", no_args_is_help=True, rich_markup_mode="rich", add_completion=False, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback(help=_HELP)
def headrace(
    _: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Hold the options that stand before a subcommand; being there, it also keeps a single subcommand a subcommand."""


app.command()(init)
app.command()(tail)
app.command()(check)
app.command()(run)
app.command()(copy)
app.command()(replay)
app.command()(demo)
app.command()(status)
app.command()(resync)
app.command()(rollback)
app.command()(adopt)
app.command()(new_destination)
app.add_typer(slot_app, name="slot")
app.add_typer(source_app, name="source")
