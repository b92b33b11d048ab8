"""`headrace init`: write a pipeline.yaml, by answers or by options."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer
from pydantic import SecretStr

from ..config.connection import PgConnectionConfig
from ..config.destination import DESTINATION_SETTINGS
from ..errors import ConfigError, SourceAuthenticationFailed, SourceError
from ..postgres.connection import connect, parse_conninfo
from ..postgres.publications import publication_exists, published_tables
from ..postgres.slots import slot_state
from ..remedies import sql_on_one_line
from .exit_code import ExitCode
from .failing import errors_shown, fail, show
from .pipeline_file import PipelineFile
from .publishing import Publishable, create_publication, publishable_tables, select, statement
from .terminal import on_terminal, say

__all__ = ["init"]

_Path = Annotated[Path, typer.Argument(metavar="PATH", help="The file to write.")]
_Source = Annotated[
    str | None,
    typer.Option(
        envvar="HEADRACE_SOURCE",
        show_default=False,
        help="The source database: a postgresql:// URL or a libpq conninfo string. A password in it is used for the "
        "check only, and not written.",
    ),
]
_Publication = Annotated[str | None, typer.Option(show_default=False, help="The publication to replicate.")]
_Destination = Annotated[
    str | None,
    typer.Option(show_default="iceberg", help=f"One of {', '.join(DESTINATION_SETTINGS)}."),
]
_Warehouse = Annotated[
    str | None,
    typer.Option(show_default="./warehouse", help="For iceberg and delta: a directory, or a URI such as s3://…"),
]
_PasswordFile = Annotated[
    Path | None,
    typer.Option(
        show_default=False, help="A file that holds nothing but the password; the configuration names it.", exists=True,
        dir_okay=False,
    ),
]  # fmt: skip
_Create = Annotated[bool, typer.Option("--create-publication", help="Create the publication if it does not exist.")]
_Tables = Annotated[
    list[str] | None,
    typer.Option("--table", show_default="all", help="A table for the new publication; may be repeated."),
]
_Id = Annotated[int | None, typer.Option("--id", min=0, show_default="the first free", help="The pipeline's number.")]
_Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take options and defaults.")]


def init(  # noqa: PLR0913, PLR0917 - the options of a command
    path: _Path = Path("pipeline.yaml"),
    source: _Source = None,
    publication: _Publication = None,
    destination: _Destination = None,
    warehouse: _Warehouse = None,
    password_file: _PasswordFile = None,
    create: _Create = False,
    tables: _Tables = None,
    pipeline_id: _Id = None,
    force: _Force = False,
    yes: _Yes = False,
) -> None:
    """Write a commented pipeline.yaml, and create the publication if you like.

    On a terminal it asks for what the options leave open; elsewhere, and
    with --yes, it takes defaults. If the source can be reached, it looks
    whether the publication is there and picks a number that is free.

    The password never goes into the file: the file names a password_file,
    or says which variable to set.

    For example:

        headrace init

        headrace init shop.yaml --source postgresql://replicator@db/shop --publication shop_pub

        headrace init --yes --source postgresql://db/shop --publication p --create-publication

    Exit codes: 0 written; 1 broken off; 2 wrong usage, the file is there
    already, or a publication that would break writes to a table; 3 could
    not connect, and --create-publication needs it; 4 the server refused
    to create the publication.
    """
    with errors_shown():
        if path.exists() and not force:
            raise ConfigError(f"{path} is there already", hint="give another path, or --force to overwrite it")
        if destination is not None:
            _kind(destination)
        _require_directory(path.absolute().parent)
        asking = not yes and on_terminal()
        if tables and not create and not asking:
            raise typer.BadParameter("goes with --create-publication", param_hint="--table")
        answers = _Answers(asking)
        where = _source(answers.text(source, "--source", "Source database (postgresql://user@host/database)"),
                        password_file)  # fmt: skip
        name = answers.text(publication, "--publication", "Publication", default="headrace" if asking else None)
        connection, where = _try(where, answers, needed=create)
        if connection is not None:
            with connection:
                _publish(connection, name, _Wish(create, tuple(tables or ())), answers)
                pipeline_id = _free_id(connection) if pipeline_id is None else pipeline_id
        kind = _kind(answers.text(destination, "--destination", "Destination", default="iceberg"))
        place = "./warehouse"
        if kind in ("iceberg", "delta"):
            place = answers.text(warehouse, "--warehouse", "Warehouse (a directory or a URI)", default=place)
        chosen = PipelineFile(1 if pipeline_id is None else pipeline_id, name, where, kind, place)
        _write(path, chosen.text(path))
        typer.echo(f"wrote {path}; next: headrace check {path}, then headrace run {path}")


@dataclass(frozen=True, slots=True)
class _Wish:
    """Whether the publication is to be created without asking, and of which tables; of all if none is named."""

    create: bool
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Answers:
    """Asks on a terminal; elsewhere takes the default, or says which option is missing."""

    asking: bool

    def text(self, given: str | None, option: str, question: str, default: str | None = None) -> str:
        if given is not None:
            return given
        if self.asking:
            return str(typer.prompt(question, default=default))
        if default is None:
            raise typer.BadParameter("is needed where nobody can be asked", param_hint=option)
        return default

    def agrees(self, question: str) -> bool:
        return self.asking and typer.confirm(question, default=True)


def _source(text: str, password_file: Path | None) -> PgConnectionConfig:
    try:
        return parse_conninfo(text, password_file=None if password_file is None else password_file.absolute())
    except ConfigError as error:
        raise typer.BadParameter(f"{error}\n{error.hint}", param_hint="--source") from None


def _kind(destination: str) -> str:
    if destination not in DESTINATION_SETTINGS:
        msg = f"no destination is called {destination!r}; there are {', '.join(DESTINATION_SETTINGS)}"
        raise typer.BadParameter(msg, param_hint="--destination")
    return destination


def _require_directory(directory: Path) -> None:
    """Known before the first question is asked, and before a publication is created."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is a file, not a directory", hint="give a path elsewhere")
    if not directory.is_dir():
        raise ConfigError(f"there is no directory {directory}", hint="make it first: mkdir -p")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigError(f"this user may not write to {directory}", hint="give a path elsewhere, or chmod it")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", hint="give a path elsewhere") from None


def _try(
    config: PgConnectionConfig, answers: _Answers, *, needed: bool
) -> tuple[psycopg.Connection[Any] | None, PgConnectionConfig]:
    """A connection, if the source can be reached; a password that is missing is asked for, once."""
    try:
        return connect(config, "init"), config
    except SourceAuthenticationFailed as error:
        problem: SourceError = error
        if answers.asking and config.password_file is None:
            show(error)
            password = typer.prompt("Password (for this check, not written)", hide_input=True, default="")
            if password:
                return _try(config.model_copy(update={"password": SecretStr(password)}), _Answers(False), needed=needed)
    except SourceError as error:
        problem = error
    if needed:
        fail(problem, ExitCode.CANNOT_CONNECT)
    show(problem)
    typer.echo("the source was not checked; the file is written all the same", err=True)
    return None, config


def _publish(connection: psycopg.Connection[Any], name: str, wish: _Wish, answers: _Answers) -> None:
    if publication_exists(connection, name):
        count = len(published_tables(connection, name))
        say(f"publication {name} has {count} table{'' if count == 1 else 's'}")
        return
    tables = publishable_tables(connection)
    named = list(wish.tables)
    if not wish.create:
        listed = ", ".join(f"{table.name}{'' if table.has_identity else ' (no key)'}" for table in tables)
        say(f"publication {name} does not exist. The database has: {listed or 'no tables'}")
        if not answers.agrees("Create it?"):
            say(f"create it before you run the pipeline: {sql_on_one_line(statement(name, _harmless(tables)))}")
            return
        asked = [] if named else str(typer.prompt("Tables, separated by commas", default="all")).split(",")
        named += [table.strip() for table in asked if table.strip() not in ("", "all")]
    chosen = select(tables, named)
    sql = statement(name, chosen if named else None)
    create_publication(connection, sql, chosen)
    say(f"done: {sql_on_one_line(sql)}")


def _harmless(tables: list[Publishable]) -> list[Publishable] | None:
    """The tables to propose for a publication: those whose writes go on working; None for all."""
    fit = [table for table in tables if table.has_identity]
    return fit if 0 < len(fit) < len(tables) else None


def _free_id(connection: psycopg.Connection[Any]) -> int:
    """The first number whose slot does not exist: slots are per server, whatever the database."""
    number = 1
    while slot_state(connection, f"headrace_{number}") is not None:
        number += 1
    return number
