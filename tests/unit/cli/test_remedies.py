"""Commands in hints work as printed: each parses, and names the file and the table that are meant."""

from __future__ import annotations

import ast
import errno
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

import headrace
from headrace.cli.main import _COMMANDS, app
from headrace.errors import DestinationRejected
from headrace.pipeline.tables import Tables
from headrace.remedies import (
    RESYNC,
    ROLLBACK,
    errors_of_file,
    file_named,
    has_command,
    is_disk_full,
    make_room,
    name_file,
    name_table,
)
from headrace.schema import TableName
from headrace.stores import MemoryStore
from headrace.testing.store_suite import TO_READY, A, example_schema, follow

ROOT = Path(headrace.__file__).parent
NAMES = [name.replace("_", "-") for name in _COMMANDS]
COMMAND = re.compile(rf"headrace (?:{'|'.join(NAMES)})\b(?:(?!  )[^;,:()`|\n])*")
TABLE = TableName("public", "Line Items; $(x)")


def texts(path: Path) -> list[str]:
    """The texts of a module that are no docstrings, constants of `remedies` put in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    aside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(map(_put_in, node.values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in aside | parts:
            found.append(node.value)
    return found


def _put_in(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    name = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
    return {"RESYNC": RESYNC, "ROLLBACK": ROLLBACK}.get(name, "x")


COMMANDS = sorted(
    {
        (path.relative_to(ROOT).as_posix(), command.strip())
        for path in ROOT.rglob("*.py")
        if path.parent.name != "testing" and path.name != "main.py"
        for text in texts(path)
        for command in COMMAND.findall(text)
    }
)


def parse(command: str) -> None:
    """Parse a command as the shell and the command line do. Raises an error of usage for one that is wrong."""
    program, *arguments = shlex.split(command)
    assert program == "headrace"
    group: Any = typer.main.get_command(app)
    while hasattr(group, "commands"):
        name, *arguments = arguments
        group = group.commands[name]
    group.make_context(group.name, arguments)


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 5
    assert ("remedies.py", RESYNC) in COMMANDS


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_every_command_in_a_message_parses_as_printed(path: str, command: str, tmp_path: Path) -> None:
    del path
    file = tmp_path / "my pipeline's.yaml"
    file.touch()
    with file_named(file):
        printed = name_file(name_table(command, TABLE, "lake"))
    assert not re.search(r"PIPELINE\.YAML|\bTABLE\b|\bFILE\b|…", printed)
    parse(printed)


@pytest.mark.parametrize("wrong", ["headrace resync", "headrace resync f", "headrace rollback f t --to-start"])
def test_a_wrong_command_is_found(wrong: str) -> None:
    with pytest.raises(Exception, match=r"Missing parameter|No such option"):
        parse(wrong)


def test_names_are_quoted_and_reach_the_command(tmp_path: Path) -> None:
    file = tmp_path / "my pipeline's.yaml"
    with file_named(file):
        printed = name_file(name_table(f"mend it, then: {ROLLBACK}", TABLE, "lake"))
    words = shlex.split(printed.partition("then: ")[2])
    assert words == ["headrace", "rollback", str(file), str(TABLE), "--destination", "lake"]
    assert has_command(printed)
    assert name_file(RESYNC) == RESYNC


def test_without_a_file_the_source_is_named() -> None:
    with file_named(None, "postgresql://me@db/shop"):
        assert name_file("headrace source install PIPELINE.YAML") == (
            "headrace source install --source postgresql://me@db/shop"
        )


@pytest.mark.parametrize(("destination", "option"), [("", ""), ("lake", " --destination lake")])
def test_the_stored_solution_of_a_failed_table_names_the_table(destination: str, option: str) -> None:
    store = MemoryStore()
    follow(store, A, *TO_READY)
    tables = Tables(store, destination=destination)
    tables.load([example_schema(A)], Nothing())  # type: ignore[arg-type]
    (table,) = tables.all()
    tables.fail(table, DestinationRejected("no"))
    solution = store.get_table_states()[A].solution
    assert solution is not None
    assert solution.endswith(f"then: headrace rollback PIPELINE.YAML '{table.name}'{option}")


class Nothing:
    """A destination that has applied nothing."""

    def applied_lsn(self, _: object) -> None:
        return None

    def copied_parts(self, _: object) -> None:
        return None


def test_a_full_disk_is_named_with_the_space_that_is_left(tmp_path: Path) -> None:
    hint = make_room(tmp_path / "not" / "there" / "yet")
    found = re.search(r"or enlarge it \((/.*), which has [\d,]+ bytes left\): the pipeline then continues", hint)
    assert hint.startswith(f"free space on the disk of {tmp_path}/not/there/yet, ")
    assert found is not None
    assert os.path.ismount(found[1])
    assert str(tmp_path).startswith(found[1])


def test_an_error_of_arrow_names_the_file() -> None:
    with pytest.raises(OSError, match="Error writing") as raised, errors_of_file("/lake/part.parquet"):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")
    assert raised.value.filename == "/lake/part.parquet"
    assert make_room("file:///tmp").startswith("free space on the disk of /tmp, or enlarge it (/")


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True),
        (OSError(errno.EACCES, "x"), False),
        ("java.io.IOException: No space left on device", True),
        ("database or disk is full", True),
    ],
)
def test_a_full_disk_is_recognised(error: OSError | str, full: bool) -> None:
    assert is_disk_full(error) is full
