"""The whole demo, as a user runs it, small: it proves equality, its query works, and Ctrl-C leaves nothing."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headrace.demo.lakehouses import LAKEHOUSES

SMALL = ("--rows", "5000", "--seconds", "3")
MARK = "HEADRACE_TEST_MARK"

pytestmark = pytest.mark.spark


class Started:
    """`headrace demo` in a session of its own, as a terminal gives it one, with a mark on all its processes."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.mark = secrets.token_hex(8)
        self.process = subprocess.Popen(
            [str(Path(sys.executable).with_name("headrace")), "demo", "--dir", str(directory), *SMALL, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, MARK: self.mark, "COLUMNS": "200"},
        )  # fmt: skip
        self.output = ""

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.left():
            process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def read_until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if text in line:
                return
        pytest.fail(f"{text!r} never came:\n{self.output}")

    def ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        assert self.process.stdout is not None
        self.output += self.process.stdout.read()
        return self.process.wait()

    def left(self) -> list[psutil.Process]:
        """The processes of this demo that are there, whoever their parent is."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.mark.parametrize(
    "destination",
    ["iceberg", *(pytest.param(kind, marks=pytest.mark.long) for kind in LAKEHOUSES if kind != "iceberg")],
)
def test_it_proves_that_the_lakehouse_equals_the_source(tmp_path: Path, destination: str) -> None:
    with Started(tmp_path / "demo", "--destination", destination) as demo:
        assert demo.end() == 0, demo.output
        assert demo.left() == []
    assert "The lakehouse equals the source" in demo.output
    lines = demo.output.splitlines()
    query = lines[lines.index("A query to try:") + 2]
    shown = subprocess.run(shlex.split(query), capture_output=True, text=True, check=True).stdout
    assert "shipped" in shown
    assert str(tmp_path / "demo") in lines[lines.index("A query to try:") - 2]


def test_it_goes_on_until_ctrl_c_and_proves_then(tmp_path: Path) -> None:
    with Started(tmp_path / "demo", "--keep") as demo:
        demo.read_until("streaming;")
        demo.ctrl_c()
        assert demo.end() == 0, demo.output
        assert demo.left() == []
    assert "Ctrl-C ends them" in demo.output
    assert "The lakehouse equals the source" in demo.output
    assert "Traceback" not in demo.output


@pytest.mark.parametrize(
    "moment",
    [
        "Postgres 18 runs",
        "starting Spark",
        pytest.param("copying;", marks=pytest.mark.long),
        pytest.param("streaming;", marks=pytest.mark.long),
        pytest.param("the last change is applied", marks=pytest.mark.long),
    ],
)
def test_ctrl_c_stops_it_with_all_that_was_started(tmp_path: Path, moment: str) -> None:
    with Started(tmp_path / "demo") as demo:
        demo.read_until(moment)
        demo.ctrl_c()
        assert demo.end() == 130, demo.output
        assert demo.left() == []
    assert demo.output.splitlines()[-1] == "stopped, with all that was started"
    assert "Traceback" not in demo.output


@pytest.mark.long
def test_a_second_ctrl_c_ends_what_the_first_began(tmp_path: Path) -> None:
    """The first asks for the proof; whoever has no patience for it asks again. The next demo does not mind."""
    with Started(tmp_path / "demo", "--keep") as demo:
        demo.read_until("streaming;")
        demo.ctrl_c()
        demo.read_until("changes streamed;")
        demo.ctrl_c()
        assert demo.end() == 130, demo.output
        assert demo.left() == []
    assert "Traceback" not in demo.output
    with Started(tmp_path / "demo") as again:
        assert again.end() == 0, again.output
