"""Rows on their way to DuckDB are never all in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("memory_child.py")
PARTS = 80
# Of 640 MiB: a row group or two of DuckDB's, its limit, and what one statement takes. With all of it, twice as much.
BOUND_MIB = 480


@pytest.mark.parametrize("kind", ["duckdb", "ducklake"])
def test_a_large_part_of_a_copy(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, str(CHILD), kind, str(tmp_path), str(PARTS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < BOUND_MIB
