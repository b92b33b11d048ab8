"""`headrace check`: is the source ready, and this machine? Runs checks and shows what they found."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ..config.connection import PgConnectionConfig
from ..config.load import load_pipeline_config
from ..config.pipeline import PipelineConfig
from ..errors import ConfigError, SourceError
from ..postgres.connection import connect, parse_conninfo
from ..postgres.preflight import ALL_CHECKS, Finding, Severity, Target, run_checks
from ..remedies import name_file, sql_on_one_line
from ..telemetry.redaction import escape_unprintable
from .connecting import connected
from .exit_code import ExitCode
from .failing import errors_shown, fail
from .local_checks import LOCAL_CHECKS, PIPELINE_CHECKS, check_here, check_there, with_source
from .terminal import SafeConsole

__all__ = ["check"]

_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}

_Config = Annotated[
    Path | None,
    typer.Argument(
        metavar="PIPELINE.YAML",
        show_default=False,
        help="A pipeline's configuration: source and publication come from it, and its destination, its Java and its "
        "directories are checked too.",
    ),
]
_Source = Annotated[
    str | None,
    typer.Option(
        envvar="HEADRACE_SOURCE",
        show_default=False,
        help="The source database: a postgresql:// URL or a libpq conninfo string. Keep the password out of it (other "
        "users see a command line): use --password-file, PGPASSWORD or ~/.pgpass.",
    ),
]
_Publication = Annotated[str | None, typer.Option(show_default=False, help="The publication to replicate.")]
_PasswordFile = Annotated[
    Path | None,
    typer.Option(show_default=False, help="A file that holds nothing but the password.", exists=True, dir_okay=False),
]
_Json = Annotated[bool, typer.Option("--json", help="Print findings as JSON, for scripts.")]


def check(
    context: typer.Context,
    config: _Config = None,
    source: _Source = None,
    publication: _Publication = None,
    password_file: _PasswordFile = None,
    as_json: _Json = False,
) -> None:
    """Check that a Postgres server can be a source: settings, privileges, publication, tables.

    Given a pipeline's configuration, also checks its settings, Java, and
    the directories it writes to. Changes nothing, on the server or here.
    Every finding comes with a remedy, as SQL where possible.

    For example:

        headrace check --source postgresql://replicator@db/shop --publication shop_pub

        headrace check pipeline.yaml

        headrace check pipeline.yaml --json

    Exit codes: 0 no errors, 1 errors found, 2 wrong usage, 3 could not connect.
    """
    with errors_shown(config, source):
        if config is not None:
            _refuse_both(context)
            _check_pipeline(load_pipeline_config(config), as_json)
            return
        if source is None or publication is None:
            msg = "give a PIPELINE.YAML, or --source and --publication"
            raise typer.BadParameter(msg, param_hint="--source" if source is None else "--publication")
        where = _parsed(source, password_file)
        with connected(where, "check") as connection:
            findings = run_checks(connection, Target(where, publication))
        _report(findings, as_json, f"{len(ALL_CHECKS)} checks of {_place(where, publication)}")


def _check_pipeline(config: PipelineConfig, as_json: bool) -> None:
    findings = check_here(config)
    try:
        connection = connect(config.pg_connection, "check", pipeline=config.id)
    except SourceError as error:
        # What is wrong here can be mended meanwhile.
        _show(findings, as_json, f"{len(LOCAL_CHECKS)} checks of this machine")
        fail(error, ExitCode.CANNOT_CONNECT)
    with connection:
        source = config.source
        target = Target(config.pg_connection, config.publication_name, source.install, source.failover_slot)
        findings += run_checks(connection, target)
        findings = with_source(findings, check_there(connection, config))
    count = len(LOCAL_CHECKS) + len(ALL_CHECKS) + len(PIPELINE_CHECKS)
    where = _place(config.pg_connection, config.publication_name)
    _report(findings, as_json, f"{count} checks of pipeline {config.id} and {where}")


def _refuse_both(context: typer.Context) -> None:
    given = [name for name in ("source", "publication", "password_file") if _is_on_command_line(context, name)]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise typer.BadParameter("the configuration says this: leave the option out", param_hint=option)


def _is_on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _parsed(source: str, password_file: Path | None) -> PgConnectionConfig:
    try:
        return parse_conninfo(source, password_file=password_file)
    except ConfigError as error:
        raise typer.BadParameter(f"{error}\n{error.hint}", param_hint="--source") from None


def _place(config: PgConnectionConfig, publication: str) -> str:
    return f"{config.host}:{config.port}/{config.name}, publication {publication}"


def _report(findings: list[Finding], as_json: bool, what: str) -> None:
    _show(findings, as_json, what)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(ExitCode.NOT_WELL)


def _show(findings: list[Finding], as_json: bool, what: str) -> None:
    findings = [replace(finding, remedy=name_file(finding.remedy)) for finding in findings]
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
        return
    console = SafeConsole()
    if findings:
        console.print(_table(findings))
    console.print(f"{escape(what)}: {_summary(findings) or 'all is well'}", highlight=False, soft_wrap=True)


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
        # Names come from the database, may look like markup, and may have line breaks.
        table.add_row(
            f"[{colour}]{finding.severity.value}[/]",
            finding.check,
            escape(escape_unprintable(finding.message)),
            escape(escape_unprintable(sql_on_one_line(finding.remedy))),
        )
    return table
