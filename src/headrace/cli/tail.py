"""`headrace tail`: a database's changes as they happen, on the terminal or as JSON lines."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psycopg
import typer

from ..config.connection import PgConnectionConfig
from ..config.receiver import StreamConfig
from ..errors import ConfigError, HeadraceError, PublicationNotFound, SourceError
from ..postgres.catalog import table_schemas
from ..postgres.connection import connect, parse_conninfo
from ..postgres.preflight import Severity, Target, run_checks
from ..postgres.preflight.access import replication_privilege
from ..postgres.preflight.server import free_slots, free_walsenders, server_version, wal_level
from ..postgres.publications import published_tables
from ..postgres.translation import translated_errors
from ..remedies import sql_on_one_line
from ..schema import ReplicatedTableSchema, TableSchema, quote_identifier
from .asking import find_table
from .connecting import connected
from .exit_code import ExitCode
from .failing import errors_shown, fail, show
from .publishing import create_publication, publishable_tables, select, statement
from .terminal import say

if TYPE_CHECKING:
    from .following import Tally

__all__ = ["tail"]

_CHECKS = (server_version, wal_level, replication_privilege, free_slots, free_walsenders)
"""What tailing needs of a server; it is asked before anything is made there."""

_Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        envvar="HEADRACE_SOURCE",
        show_default=False,
        help="The database: a postgresql:// URL or a libpq conninfo string. Keep the password out of it (other users "
        "see a command line): use --password-file, PGPASSWORD or ~/.pgpass.",
    ),
]
_Publication = Annotated[str | None, typer.Option(show_default=False, help="The publication to read.")]
_Tables = Annotated[
    list[str] | None,
    typer.Option("--table", show_default="all", help="Show this table's changes only; may be repeated."),
]
_Create = Annotated[
    bool,
    typer.Option(
        "--create-publication",
        help="Create the publication, of the named tables or of all. Without --publication it has a name of its own, "
        "and is dropped in the end.",
    ),
]
_PasswordFile = Annotated[
    Path | None,
    typer.Option(show_default=False, help="A file that holds nothing but the password.", exists=True, dir_okay=False),
]
_Json = Annotated[
    bool | None,
    typer.Option("--json/--pretty", show_default="pretty on a terminal", help="A JSON object per line, or colours."),
]
_Limit = Annotated[
    int | None, typer.Option(min=1, show_default="none", help="Stop after so many changes: rows and truncates.")
]


def tail(  # noqa: PLR0913, PLR0917 - the options of a command
    source: _Source,
    publication: _Publication = None,
    tables: _Tables = None,
    create: _Create = False,
    password_file: _PasswordFile = None,
    as_json: _Json = None,
    limit: _Limit = None,
) -> None:
    """Show a database's changes as they are committed, until Ctrl-C.

    Needs no configuration, no Java, and leaves nothing behind: it reads
    through a temporary replication slot, which goes with the connection.
    Of an update it shows what changed where Postgres sends the old row
    (REPLICA IDENTITY FULL), else the new one. A table that was altered
    is told of with its next change. In a pipe, or with --json, each event
    is a line of JSON, as the destination stdout writes it.

    For example:

        headrace tail postgresql://replicator@db/shop --publication shop_pub

        headrace tail postgresql://postgres@db/shop --create-publication --table orders

        headrace tail postgresql://replicator@db/shop --publication p --limit 10 | jq .row

    Exit codes: 0 stopped by Ctrl-C, the limit, or the reader of a pipe; 1
    server or role are not ready for it; 2 wrong usage, or no publication;
    3 could not connect; 4 the stream broke; 130 stopped immediately by a
    second Ctrl-C.
    """
    with errors_shown():
        where = _parsed(source, password_file)
        wish = _Wish(publication, tuple(tables or ()), create)
        with _published(where, wish) as read:
            tally = _run(read, _format(as_json), limit)
        typer.echo(tally.summary(), err=True)
        if tally.cut_off:
            raise typer.Exit(ExitCode.CUT_OFF)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the options say of the publication."""

    publication: str | None
    tables: tuple[str, ...]
    create: bool


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is read."""

    config: StreamConfig
    tables: tuple[ReplicatedTableSchema, ...]
    only: frozenset[int] | None

    def look_up(self, table_id: int) -> TableSchema | None:
        with connect(self.config.pg_connection, "tail") as connection:
            return table_schemas(connection, [table_id]).get(table_id)


def _parsed(source: str, password_file: Path | None) -> PgConnectionConfig:
    try:
        return parse_conninfo(source, password_file=password_file)
    except ConfigError as error:
        raise typer.BadParameter(f"{error}\n{error.hint}", param_hint="SOURCE") from None


def _format(as_json: bool | None) -> str:
    return "auto" if as_json is None else "json" if as_json else "pretty"


def _require_ready(connection: psycopg.Connection[Any], where: PgConnectionConfig, publication: str) -> None:
    for found in run_checks(connection, Target(where, publication), _CHECKS):
        if found.severity is Severity.ERROR:
            fail(SourceError(found.message, hint=found.remedy), ExitCode.NOT_WELL)


@contextmanager
def _published(where: PgConnectionConfig, wish: _Wish) -> Iterator[_Subject]:
    """What is to be read. A publication that has to be made and was given no name is dropped in the end."""
    name, dropped = wish.publication, wish.create and wish.publication is None
    with connected(where, "tail") as connection:
        _require_ready(connection, where, name or "")
        if name is None and not wish.create:
            raise _no_publication(connection, wish)
        name = name or f"headrace_tail_{secrets.token_hex(4)}"
        if wish.create:
            _create(connection, name, wish.tables)
    try:
        with connected(where, "tail") as connection:
            read = _subject(connection, where, name, wish)
        yield read
    finally:
        if dropped:
            _drop(where, name)


def _create(connection: psycopg.Connection[Any], name: str, tables: Sequence[str]) -> None:
    chosen = select(publishable_tables(connection), tables)
    sql = statement(name, chosen if tables else None)
    create_publication(connection, sql, chosen)
    say(f"done: {sql_on_one_line(sql)}", err=True)


def _drop(where: PgConnectionConfig, name: str) -> None:
    sql = f"DROP PUBLICATION IF EXISTS {quote_identifier(name)}"
    try:
        with connect(where, "tail") as connection, translated_errors(f"cannot drop publication {name}"):
            connection.execute(sql.encode())
    except SourceError as error:
        # Said beside the error that perhaps brought us here.
        show(type(error)(error.message, detail=error.detail, hint=f"once the server answers, run {sql}"))


def _no_publication(connection: psycopg.Connection[Any], wish: _Wish) -> HeadraceError:
    with translated_errors("cannot read publications"):
        rows = connection.execute("SELECT pubname FROM pg_catalog.pg_publication ORDER BY 1").fetchall()
    what = f"TABLE {', '.join(wish.tables)}" if wish.tables else "ALL TABLES"
    known = f"give --publication: this database has {', '.join(row[0] for row in rows)}. Or " if rows else ""
    hint = f"{known}let it be made for the time being with --create-publication, or run CREATE PUBLICATION … FOR {what}"
    return ConfigError("which publication is to be read?", hint=hint)


def _subject(connection: psycopg.Connection[Any], where: PgConnectionConfig, name: str, wish: _Wish) -> _Subject:
    try:
        tables = published_tables(connection, name)
    except PublicationNotFound as error:
        hint = f"{error.hint}; or let it be made with --create-publication"
        fail(PublicationNotFound(error.message, hint=hint), ExitCode.USAGE)
    slot = f"headrace_tail_{secrets.token_hex(4)}"
    # Not streamed: what is rolled back in the end would have to be kept until then.
    config = StreamConfig(pg_connection=where, publication_name=name, slot_name=slot, streaming=False)
    return _Subject(config, tables, _only(tables, wish.tables, name))


def _only(tables: Sequence[ReplicatedTableSchema], names: Sequence[str], publication: str) -> frozenset[int] | None:
    known = {schema.table.id: schema.table.name for schema in tables}
    return frozenset(find_table(name, known, f"publication {publication}") for name in names) if names else None


def _run(read: _Subject, format: str, limit: int | None) -> Tally:
    # Arrow takes a moment to import: only who decodes waits for it.
    from ..destinations.stdout import EventLines  # noqa: PLC0415
    from ..replication.live import LiveEvents  # noqa: PLC0415
    from .following import follow  # noqa: PLC0415

    at, count = read.config.pg_connection, len(read.tables) if read.only is None else len(read.only)
    tables = "1 table" if count == 1 else f"{count} tables"
    what = f"publication {read.config.publication_name} of {at.host}:{at.port}/{at.name}, {tables}"
    told = f"following {what}; Ctrl-C ends it"
    lines, live = EventLines(sys.stdout, format), LiveEvents(read.tables, read.look_up, read.only)
    return follow(read.config, live, lines, limit=limit, started=lambda: typer.echo(told, err=True))
