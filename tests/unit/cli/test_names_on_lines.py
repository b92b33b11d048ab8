"""Names with line breaks: whoever may create a table must not be able to write a line of a command's output."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
from typing import Any

import pytest
import structlog

from headrace.cli.asking import find_table
from headrace.cli.check import _table
from headrace.cli.failing import show
from headrace.cli.terminal import SafeConsole, say
from headrace.config.telemetry import LogConfig, LogFormat
from headrace.errors import ConfigError, HeadraceError, TableNotFound
from headrace.postgres.preflight.contract import Finding, Severity
from headrace.remedies import RESYNC, name_table, quote_for_shell
from headrace.schema import TableName
from headrace.telemetry.logging import configure_logging

FORGED = TableName("public", "new\nerror the pipeline is lost\r\x85\u2028\u202e")
SHOWN = r"public.new\nerror the pipeline is lost\r\x85\u2028\u202e"
STEERING = ("\nerror the", "\r", "\x85", "\u2028", "\u202e")


def printed(print_to: Any, **how: Any) -> str:
    out = io.StringIO()
    print_to(SafeConsole(file=out, width=400, **how))
    return out.getvalue()


def assert_harmless(text: str) -> None:
    assert [found for found in STEERING if found in text] == []
    assert SHOWN in text


def test_errors() -> None:
    tables = {1: FORGED, 2: TableName("other", FORGED.name)}
    with pytest.raises(TableNotFound) as several:
        find_table(FORGED.name, tables)
    with pytest.raises(TableNotFound) as unknown:
        find_table("x", tables)
    for error in (several.value, unknown.value, HeadraceError("failed", detail=f"table {FORGED}")):
        assert_harmless(printed(lambda console, error=error: show(error, console)))
    # A list of ours keeps its lines.
    lists = ConfigError("the settings have 2 problems:\n- one\n- two", hint="mend them")
    assert printed(lambda console: show(lists, console)).splitlines()[1:3] == ["- one", "- two"]


def test_findings() -> None:
    remedy = f"run: {name_table(RESYNC, FORGED)}"
    finding = Finding("replica identity", Severity.ERROR, f"table {FORGED} has no key", remedy)
    text = printed(lambda console: console.print(_table([finding])))
    assert_harmless(text)
    assert len(text.splitlines()) == 5


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"asked pipeline 1 to copy {FORGED} again")
    assert capsys.readouterr().out == f"asked pipeline 1 to copy {SHOWN} again\n"


@pytest.mark.parametrize("name", ["new\nline", "a'b\n$(c)`d`\\n\"", "\x1b[2J", "tab\there", "\u202e", "é \n", "plain"])
def test_commands_work_as_printed(name: str) -> None:
    quoted = quote_for_shell(name)
    assert quoted.isprintable()
    said = subprocess.run(
        ["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert said.stdout.decode() == name
    if name.isprintable():
        assert quoted == shlex.quote(name)


@pytest.mark.parametrize("format", [LogFormat.JSON, LogFormat.CONSOLE])
def test_log_lines(format: LogFormat) -> None:
    stream = io.StringIO()
    configure_logging(LogConfig(format=format), stream)
    structlog.get_logger().warning(
        f"table {FORGED} 😀 is left out", table=str(FORGED), tables=[str(FORGED), "\U000e0001"]
    )
    text = stream.getvalue()
    assert len(text.splitlines()) == 1
    assert [found for found in STEERING if found in text] == []
    assert "😀" in text
    if format is LogFormat.JSON:
        line = json.loads(text)
        assert (line["table"], line["tables"]) == (str(FORGED), [str(FORGED), "\U000e0001"])
        assert r"\u202e" in text
    else:
        assert f"table {SHOWN}" in text
