"""Ctrl-C while Python is still importing: one line and exit code 130, whatever library is being loaded."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("headrace")
BEGUN = "headrace.cli.entry"
"""From here on signals are ours. It is the last module before the command's own."""


def imported_until(process: subprocess.Popen[str], module: str) -> None:
    """Wait until the process says that it has imported a module: `-X importtime` has a line for each."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.rpartition("|")[2].strip() == module:
            return
    pytest.fail(f"{module} is not imported")


def interrupted(module: str, *arguments: str) -> tuple[int, str]:
    """Exit code and complaints of a command that is interrupted when it has just imported `module`."""
    command = [sys.executable, "-X", "importtime", str(COMMAND), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        imported_until(process, BEGUN)
        imported_until(process, module)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    lines = [line for line in said.splitlines() if not line.startswith("import time:")]
    return process.returncode, "\n".join(lines)


@pytest.mark.parametrize(
    "module",
    ["typer", "pydantic_core._pydantic_core", "pydantic", "psycopg_binary.pq", "psycopg", "rich.console", "yaml"],
)
def test_while_the_command_is_imported(module: str) -> None:
    assert interrupted(module, "--version") == (130, "stopped")


@pytest.mark.parametrize("module", ["numpy", "pyarrow.lib", "py4j.java_gateway"])
def test_while_spark_is_imported(module: str, tmp_path: Path) -> None:
    config = tmp_path / "pipeline.yaml"
    config.write_text("id: 1\npublication_name: p\npg_connection: {host: 127.0.0.1, port: 1, name: d, username: u}\n"
                      "destination: {kind: stdout}\n")  # fmt: skip
    assert interrupted(module, "run", str(config)) == (130, "stopped")


def test_the_demo_says_that_it_has_stopped_what_it_started(tmp_path: Path) -> None:
    code, said = interrupted("pyarrow.lib", "demo", "--dir", str(tmp_path / "demo"))
    assert (code, said) == (130, "")
    assert not (tmp_path / "demo" / "warehouse").exists()
