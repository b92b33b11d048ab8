"""The guide "Your first pipeline", followed to the letter: every block of it is run, in order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "first-pipeline.md"
ADDRESS = "postgresql://replicator@localhost/shop"
RUN = "headrace run pipeline.yaml\n"
# Blocks that only show something to the reader.
SHOWN = ("console",)


class Reader:
    """Somebody with two terminals, who does what the guide says."""

    def __init__(self, directory: Path, conninfo: str, connection: psycopg.Connection[Any]) -> None:
        self.directory, self.conninfo, self.connection = directory, conninfo, connection
        self.running: subprocess.Popen[bytes] | None = None
        self.script = ""
        quick = {"HEADRACE__SPARK__SHORT_LIVED": "true", "HEADRACE__SPARK__MASTER": "local[2]"}
        password = psycopg.conninfo.conninfo_to_dict(conninfo)["password"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, **quick, "PGPASSWORD": str(password), "PATH": path}

    def follow(self, language: str, block: str) -> None:
        if language == "sql":
            self.connection.execute(block)
        elif language == "python":
            self.script = block
        elif language == "text":
            self.until_printed(block)
        elif block == RUN:
            self.start()
        else:
            if "slot drop" in block:
                self.stop()
            self.bash(block)

    def start(self) -> None:
        # The guide has it stopped before it is started again.
        self.stop()
        with (self.directory / "run.log").open("ab") as log:
            self.running = subprocess.Popen(
                ["headrace", "run", "pipeline.yaml"],
                cwd=self.directory, env=self.environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        if self.running is not None:
            self.running.send_signal(signal.SIGINT)
            assert self.running.wait(120) == 0, self.log()
            self.running = None

    def bash(self, block: str) -> None:
        source = " ".join(
            f"{k}={v}" for k, v in psycopg.conninfo.conninfo_to_dict(self.conninfo).items() if k != "password"
        )
        command = block.replace(ADDRESS, f"'{source}'")
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}\n{self.log()}"

    def until_printed(self, text: str) -> None:
        """What the guide shows is printed sooner or later: the pipeline needs its time."""
        deadline = time.monotonic() + 180
        while True:
            done = subprocess.run(
                [sys.executable, "-c", self.script],
                cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            if done.stdout == text:
                return
            assert self.running is None or self.running.poll() is None, self.log()
            assert time.monotonic() < deadline, f"{done.stdout}{done.stderr}\n{self.log()}"

    def log(self) -> str:
        path = self.directory / "run.log"
        return path.read_text(errors="replace")[-5000:] if path.exists() else ""


@pytest.fixture
def reader(tmp_path: Path, conninfo: str, connection: psycopg.Connection[Any]) -> Iterator[Reader]:
    reader = Reader(tmp_path, conninfo, connection)
    yield reader
    if reader.running is not None:
        os.killpg(reader.running.pid, signal.SIGKILL)
        reader.running.wait()


@pytest.mark.spark
def test_the_first_pipeline(reader: Reader) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    followed = [(language, block) for language, block in blocks if language not in SHOWN]
    assert {language for language, _ in followed} == {"sql", "bash", "python", "text"}
    for language, block in followed:
        reader.follow(language, block)
    assert not (reader.directory / "warehouse").exists()
