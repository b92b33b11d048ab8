"""The complete examples of the documents run as they stand, from their SQL to the output they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).parents[1]
ADDRESS = '"postgresql://replicator@localhost/shop"'


def block(page: str, language: str) -> str:
    """The page's only block of a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.mark.parametrize(
    ("page", "spool"),
    [("docs/guides/first-python-pipeline.md", ".headrace/pipeline-1/spool"), ("docs/concepts/delivery.md", "spool")],
)
def test_the_example_prints_what_it_says(
    page: str, spool: str, conninfo: str, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    # Given the table and the publication that the page asks for
    connection.execute(block(page, "sql"))
    script = block(page, "python")
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
        timeout=240,
    )
    # Then it ends well and prints the lines shown
    assert result.returncode == 0, result.stderr
    assert result.stdout == block(page, "text")
    assert list((tmp_path / spool).glob("*.arrow"))
