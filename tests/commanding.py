"""The command line in this process: arguments in, exit code and output out, and no password in what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml
from click.testing import Result
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.postgres.connection import parse_conninfo
from headrace.testing.postgres import PASSWORD

PUBLICATION = "pub"
HEAVY = {"duckdb", "fsspec", "numpy", "pandas", "py4j", "pyarrow", "pyspark"}
"""Modules that a command which only looks at something must not wait for."""
_LISTING = """
import sys
from headrace.cli.entry import main
try:
    main()
finally:
    print("modules:", *sys.modules, file=sys.stderr)
"""


def invoke(*arguments: object, answers: str | None = None, **environment: str) -> Result:
    """Run a command as a user does, wide enough that nothing is folded. `answers` is what is typed."""
    wide = {"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1", "HEADRACE_SOURCE": None, "PGPASSWORD": PASSWORD}
    result = CliRunner().invoke(app, [str(it) for it in arguments], input=answers, env={**wide, **environment})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert PASSWORD not in result.stdout + result.stderr
    return result


def run_and_list_modules(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Run a command in a process of its own; return its output and the modules that it imported."""
    command = [sys.executable, "-c", _LISTING, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return result.stdout, set(result.stderr.rpartition("modules:")[2].split())


def write_config(path: Path, conninfo: str, **settings: object) -> Path:
    """A pipeline.yaml for the test's own database, its data next to it; the password is in the environment."""
    it = parse_conninfo(conninfo)
    values: Mapping[str, object] = {
        "id": 1,
        "publication_name": PUBLICATION,
        "pg_connection": {"host": it.host, "port": it.port, "name": it.name, "username": it.username},
        "slot_name": f"slot_{it.name}",
        "data_dir": str(path.parent / "data"),
        "destination": {"kind": "null"},
        **settings,
    }
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path
