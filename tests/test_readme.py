"""The README's example runs as it stands, from its SQL to the output it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
ADDRESS = '"postgresql://replicator@localhost/shop"'


def block(language: str) -> str:
    """The README's only block of a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_example_prints_what_it_says(conninfo: str, connection: psycopg.Connection[Any], tmp_path: Path) -> None:
    # Given the table and the publication that the README asks for
    connection.execute(block("sql"))
    script = block("python")
    assert script.count(ADDRESS) == 1
    # When its script runs on this server
    example = tmp_path / "example.py"
    example.write_text(script.replace(ADDRESS, repr(conninfo)), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    # Then it ends well and prints the lines shown
    assert result.returncode == 0, result.stderr
    assert result.stdout == block("text")
    assert list((tmp_path / "spool").glob("*.arrow"))
