"""The command line in this process: arguments in, exit code and output out, and no password in what it prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from click.testing import Result
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.postgres.connection import parse_conninfo
from headrace.testing.postgres import PASSWORD

PUBLICATION = "pub"


def invoke(*arguments: object, answers: str | None = None, **environment: str) -> Result:
    """Run a command as a user does, wide enough that nothing is folded. `answers` is what is typed."""
    wide = {"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1", "HEADRACE_SOURCE": None, "PGPASSWORD": PASSWORD}
    result = CliRunner().invoke(app, [str(it) for it in arguments], input=answers, env={**wide, **environment})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert PASSWORD not in result.stdout + result.stderr
    return result


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
