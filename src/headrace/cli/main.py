"""The `headrace` command."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from .. import __version__
from ..free_memory import arrow_by_malloc

__all__ = ["app", "build_app"]

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

if TYPE_CHECKING:
    app: typer.Typer
    """The command with all its subcommands."""

_COMMANDS = (
    "init",
    "tail",
    "check",
    "run",
    "copy",
    "replay",
    "demo",
    "status",
    "resync",
    "rollback",
    "adopt",
    "new_destination",
    "slot",
    "source",
)
"""The subcommands, in the order of the help; each is a module of this package."""


def build_app(only: str | None = None) -> typer.Typer:
    """Build the command, with all its subcommands or, if `only` names one, with that one, which loads much less."""
    # Locals in a traceback would show connection parameters, the password among them.
    built = typer.Typer(
        name="headrace",
        no_args_is_help=True,
        rich_markup_mode="rich",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    built.callback(help=_HELP)(_headrace)
    for name in [only.replace("-", "_")] if only in {name.replace("_", "-") for name in _COMMANDS} else _COMMANDS:
        with arrow_by_malloc():
            module = import_module(f".{name}", __package__)
        group = getattr(module, f"{name}_app", None)
        if group is not None:
            built.add_typer(group, name=name)
        else:
            built.command()(getattr(module, name))
    return built


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


def _headrace(
    _: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Hold the options that stand before a subcommand; being there, it also keeps a single subcommand a subcommand."""


def __getattr__(name: str) -> object:
    if name != "app":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    globals()["app"] = built = build_app()
    return built
