"""What is written to standard error while a view is up, also by other processes, is printed above it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headrace.cli.log_lines import LogLines, readable

EVENT = {"timestamp": "2026-01-02T03:04:05Z", "level": "info", "event": "copied", "table": "public.t", "pipeline": 7}


def test_a_json_line_becomes_readable() -> None:
    text = readable(json.dumps(EVENT))
    assert "copied" in text
    assert "table=public.t" in text
    assert text.startswith("03:04:05 ")
    assert "pipeline" not in text
    assert "{" not in text


@pytest.mark.parametrize("line", ["plain text", "{not json", '{"no": "event"}', '["a list"]'])
def test_any_other_line_stays_as_it_is(line: str) -> None:
    assert readable(line) == line


def test_lines_of_this_process_and_of_children_are_printed_in_full(capfd: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    with LogLines():
        subprocess.run([sys.executable, "-c", f"import sys; sys.stderr.write('{long}\\nhalf')"], check=True)
    err = capfd.readouterr().err
    assert err.splitlines() == [long, "half"]


def test_json_stays_json_if_asked(capfd: pytest.CaptureFixture[str]) -> None:
    import os

    with LogLines(as_json=True):
        os.write(2, json.dumps(EVENT).encode() + b"\n")
    assert json.loads(capfd.readouterr().err) == EVENT


def test_afterwards_standard_error_is_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    import os

    with LogLines():
        pass
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
