"""Rows on their way to DuckDB are never all in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("memory_child.py")
# Of 640 MiB: a row group or two of DuckDB's, its limit, and what one statement takes. With all of it, twice as much.
BOUND_MIB = 480


def grown_mib(kind: str, what: str, root: Path, parts: int) -> int:
    command = [sys.executable, str(CHILD), kind, what, str(root), str(parts)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


@pytest.mark.parametrize("kind", ["duckdb", "ducklake"])
def test_a_large_part_of_a_copy(kind: str, tmp_path: Path) -> None:
    assert grown_mib(kind, "copy", tmp_path, 80) < BOUND_MIB


@pytest.mark.parametrize(("kind", "bound"), [("duckdb", BOUND_MIB), ("ducklake", BOUND_MIB + 400)])
def test_a_large_batch_is_merged(kind: str, bound: int, tmp_path: Path) -> None:
    """What DuckDB puts down of it fills its limit, which is 400 MB in the lake. All in memory took 1600 MiB."""
    assert grown_mib(kind, "mirror", tmp_path, 40) < bound


def test_a_large_batch_is_added_to_a_log(tmp_path: Path) -> None:
    assert grown_mib("duckdb", "changelog", tmp_path, 80) < BOUND_MIB
