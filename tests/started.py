"""Commands as a user runs them: real processes, what they say, and nothing of them left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from headrace.testing.postgres import PASSWORD

__all__ = ["Started", "commands"]

_PATIENCE_S = 240.0
_HEADRACE = [sys.executable, "-c", "from headrace.cli.main import app; app()"]


class Started:
    """A command under way. What it writes is read as it comes, so that it never waits for us."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*_HEADRACE, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
            # A process group of its own, which a test can send signals to.
            start_new_session=True,
        )  # fmt: skip
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=lines.extend, args=(stream,), daemon=True)
            for lines, stream in ((self.out, self.process.stdout), (self.err, self.process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}: {''.join(self.err)}"
            assert time.monotonic() < deadline, "".join(self.err)
            time.sleep(0.05)

    def logged(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in list(self.err))

    def ready(self) -> bool:
        return self.logged('"table moved"', '"state": "ready"')

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def ended(self) -> int:
        code = self.process.wait(_PATIENCE_S)
        for reader in self._readers:
            reader.join(_PATIENCE_S)
        said = "".join([*self.out, *self.err])
        assert PASSWORD not in said
        assert "Traceback" not in said, said
        return code

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.out)]


@contextmanager
def commands() -> Iterator[Callable[..., Started]]:
    """Starts commands; whatever a failing test leaves is ended."""
    started: list[Started] = []

    def begin(*arguments: str, **environment: str) -> Started:
        started.append(Started(*arguments, **environment))
        return started[-1]

    try:
        yield begin
    finally:
        for one in started:
            if one.process.poll() is None:
                for process in [*one.children(), one.process]:
                    process.kill()
            one.process.wait()
            for stream in (one.process.stdout, one.process.stderr):
                assert stream is not None
                stream.close()
