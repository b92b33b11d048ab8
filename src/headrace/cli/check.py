"""`headrace check`: is the source ready? Runs the preflight checks and shows what they found."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..config.connection import PgConnectionConfig
from ..errors import ConfigError, HeadraceError, SourceError
from ..postgres.connection import connect, parse_conninfo
from ..postgres.preflight import ALL_CHECKS, Finding, Severity, Target, run_checks

__all__ = ["ExitCode", "check"]


class ExitCode(IntEnum):
    """What a script can rely on."""

    READY = 0
    ERRORS_FOUND = 1
    USAGE = 2
    CANNOT_CONNECT = 3


_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}

_Source = Annotated[
    str,
    typer.Option(
        envvar="HEADRACE_SOURCE",
        show_default=False,
        help="The source database: a postgresql:// URL or a libpq conninfo string. Keep the password out of it (other "
        "users see a command line): use --password-file, PGPASSWORD or ~/.pgpass.",
    ),
]
_Publication = Annotated[str, typer.Option(show_default=False, help="The publication to replicate.")]
_PasswordFile = Annotated[
    Path | None,
    typer.Option(show_default=False, help="A file that holds nothing but the password.", exists=True, dir_okay=False),
]
_Json = Annotated[bool, typer.Option("--json", help="Print findings as JSON, for scripts.")]


def check(
    source: _Source, publication: _Publication, password_file: _PasswordFile = None, as_json: _Json = False
) -> None:
    """Check that a Postgres server can be a source: settings, privileges, publication, tables.

    Changes nothing on the server. Every finding comes with a remedy, as SQL where possible.

    Exit codes: 0 no errors, 1 errors found, 2 wrong usage, 3 could not connect.
    """
    try:
        config = parse_conninfo(source, password_file=password_file)
    except ConfigError as error:
        raise typer.BadParameter(_sentence(error), param_hint="--source") from None
    findings = _findings(config, publication)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings, config, publication)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(ExitCode.ERRORS_FOUND)


def _findings(config: PgConnectionConfig, publication: str) -> list[Finding]:
    try:
        connection = connect(config, "check")
    except ConfigError as error:
        _stop(error, ExitCode.USAGE)
    except SourceError as error:
        _stop(error, ExitCode.CANNOT_CONNECT)
    with connection:
        return run_checks(connection, Target(config, publication))


def _stop(error: HeadraceError, code: ExitCode) -> NoReturn:
    Console(stderr=True).print(f"[bold red]error[/] {escape(_sentence(error))}", highlight=False)
    raise typer.Exit(code) from None


def _sentence(error: HeadraceError) -> str:
    return f"{error}\n{error.hint}"


def _show(findings: list[Finding], config: PgConnectionConfig, publication: str) -> None:
    console = Console()
    where = f"{config.host}:{config.port}/{config.name}, publication {publication}"
    if findings:
        console.print(_table(findings))
    line = f"{len(ALL_CHECKS)} checks of {escape(where)}: {_summary(findings) or 'all is well'}"
    console.print(line, highlight=False, soft_wrap=True)


def _summary(findings: list[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    plural = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "notes"}
    return ", ".join(
        f"{count} {plural[severity] if count > 1 else plural[severity][:-1]}"
        for severity in Severity
        if (count := counts[severity])
    )


def _table(findings: list[Finding]) -> Table:
    table = Table(show_lines=True)
    for heading, style in (("Severity", ""), ("Check", ""), ("Finding", ""), ("Remedy", "green")):
        table.add_column(heading, style=style, overflow="fold")
    for finding in findings:
        colour = _COLOURS[finding.severity]
        # Names come from the database and may look like markup.
        table.add_row(
            f"[{colour}]{finding.severity.value}[/]", finding.check, escape(finding.message), escape(finding.remedy)
        )
    return table
