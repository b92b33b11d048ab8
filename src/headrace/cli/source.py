"""`headrace source install|sql|uninstall`: what is put into the source so that DDL is seen as it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..config.connection import PgConnectionConfig
from ..config.load import load_pipeline_config
from ..errors import ConfigError, SourceInRecovery, SourcePermissionDenied
from ..postgres.connection import parse_conninfo
from ..postgres.source.install import InstallResult
from ..postgres.source.install import install as install_at
from ..postgres.source.install import uninstall as uninstall_at
from ..postgres.source.script import VERSION, install_sql, uninstall_sql
from .connecting import connected
from .exit_code import ExitCode
from .failing import errors_shown, fail
from .terminal import on_terminal

__all__ = ["install", "source_app", "sql", "uninstall"]

source_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="What is put into the source to see DDL as it happens."
)

_Config = Annotated[
    Path | None,
    typer.Argument(
        metavar="PIPELINE.YAML", show_default=False, help="A pipeline's configuration: the source comes from it."
    ),
]
_Source = Annotated[
    str | None,
    typer.Option(
        envvar="HEADRACE_SOURCE",
        show_default=False,
        help="The source database: a postgresql:// URL or a libpq conninfo string. For another role than the "
        "pipeline's. Keep the password out of it: use --password-file, PGPASSWORD or ~/.pgpass.",
    ),
]
_PasswordFile = Annotated[
    Path | None,
    typer.Option(show_default=False, help="A file that holds nothing but the password.", exists=True, dir_okay=False),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")]
_Uninstall = Annotated[bool, typer.Option("--uninstall", help="The script that removes it.")]


@source_app.command()
def install(config: _Config = None, source: _Source = None, password_file: _PasswordFile = None) -> None:
    """Install functions and event triggers at the source that tell of DDL, or bring them up to date.

    They are in a schema headrace_ddl; one set serves all pipelines of the
    database. A pipeline does this itself at its start if its role may.
    Needs a superuser, or what a managed service gives its administrator.

    For example:

        headrace source install pipeline.yaml

        headrace source install --source postgresql://postgres@db.example.com/shop

    Exit codes: 0 installed, or was already; 1 the role may not; 2 wrong
    usage or configuration; 3 could not connect.
    """
    with errors_shown(config, source):
        where = _where(config, source, password_file)
        with connected(where, "source") as connection:
            try:
                result = install_at(connection)
            except (SourcePermissionDenied, SourceInRecovery) as error:
                fail(error, ExitCode.NOT_WELL)
        typer.echo(f"{_told(result)} in {_place(where)}")


@source_app.command()
def sql(uninstall: _Uninstall = False) -> None:
    """Print the SQL that install runs, for review, or to be run by another.

    It is one transaction and can be run again. Connects to nothing.

    For example:

        headrace source sql | psql -h db.example.com -U postgres shop

        headrace source sql --uninstall

    Exit codes: 0 printed; 2 wrong usage.
    """
    typer.echo(uninstall_sql() if uninstall else install_sql(), nl=False)


@source_app.command()
def uninstall(
    config: _Config = None, source: _Source = None, password_file: _PasswordFile = None, yes: _Yes = False
) -> None:
    """Remove from the source what install put there, without a trace.

    Pipelines go on, and see of schema changes what the stream shows. One
    with source.install auto, the default, installs it again at its start.
    A store in the database is kept.

    For example:

        headrace source uninstall pipeline.yaml

        headrace source uninstall --source postgresql://postgres@db.example.com/shop --yes

    Exit codes: 0 removed, or there was nothing; 1 the role may not, or you
    said no; 2 wrong usage or configuration; 3 could not connect.
    """
    with errors_shown(config, source):
        where = _where(config, source, password_file)
        with connected(where, "source") as connection:
            _confirm(where, yes)
            try:
                removed = uninstall_at(connection)
            except (SourcePermissionDenied, SourceInRecovery) as error:
                fail(error, ExitCode.NOT_WELL)
        typer.echo(f"removed from {_place(where)}" if removed else f"nothing to remove from {_place(where)}")


def _where(config: Path | None, source: str | None, password_file: Path | None) -> PgConnectionConfig:
    # The option wins: who installs is often not the role that the pipeline has.
    if source is not None:
        try:
            return parse_conninfo(source, password_file=password_file)
        except ConfigError as error:
            raise typer.BadParameter(f"{error}\n{error.hint}", param_hint="--source") from None
    if config is None:
        raise typer.BadParameter("give a PIPELINE.YAML, or --source", param_hint="--source")
    if password_file is not None:
        raise typer.BadParameter("the configuration says this: leave the option out", param_hint="--password-file")
    return load_pipeline_config(config).pg_connection


def _told(result: InstallResult) -> str:
    if result.changed and result.before is not None:
        return f"brought up to date, from version {result.before} to {result.version},"
    if result.changed:
        return f"installed version {result.version}"
    return f"version {result.version} is already installed" + (
        "" if result.version == VERSION else f", which is later than this program's {VERSION},"
    )


def _place(config: PgConnectionConfig) -> str:
    return f"database {config.name} at {config.host}:{config.port}"


def _confirm(where: PgConnectionConfig, yes: bool) -> None:
    if yes:
        return
    if not on_terminal():
        msg = f"removing it from {_place(where)} needs to be confirmed, and this is no terminal"
        raise ConfigError(msg, hint="give --yes")
    if not typer.confirm(f"Remove from {_place(where)} what tells of DDL, for all pipelines?"):
        raise typer.Exit(ExitCode.NOT_WELL)
