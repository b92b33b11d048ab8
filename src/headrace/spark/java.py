"""The Java that Spark will start: found as Spark's launcher finds it, and refused early if Spark cannot run on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ..errors import SparkUnavailable

__all__ = ["SUPPORTED", "Java", "find_java"]

SUPPORTED = (17, 21)
"""Major versions that Spark 4.1 runs on with Arrow; 25 breaks Arrow in it."""

_ANSWER_SECONDS = 60  # `java -version` takes a tenth of a second; a minute means that it hangs
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HINT = "install Java 17 or 21 (Debian: openjdk-17-jre-headless) and set JAVA_HOME to it"


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` program and its major version."""

    path: Path
    version: int


def find_java() -> Java:
    """The Java that Spark will use: that of JAVA_HOME, else the one on PATH.

    Raises:
        SparkUnavailable: there is none, or it is of a version that Spark cannot run on.
    """
    path = _locate()
    answer = _ask(path)
    found = _VERSION.search(answer)
    if found is None:
        msg = f"{path} does not say which Java it is"
        raise SparkUnavailable(msg, detail=answer.strip()[:200], hint=_HINT)
    version = int(found.group(1))
    if version not in SUPPORTED:
        msg = f"Spark cannot run on Java {version}, found at {path}"
        raise SparkUnavailable(msg, hint=_HINT)
    return Java(path, version)


def _locate() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            msg = f"JAVA_HOME is {home}, but there is no bin/java in it"
            raise SparkUnavailable(msg, hint=_HINT)
        return path
    program = shutil.which("java")
    if program is None:
        msg = "Spark needs Java, and there is none: JAVA_HOME is not set and no java is on PATH"
        raise SparkUnavailable(msg, hint=_HINT)
    return Path(program)


def _ask(path: Path) -> str:
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, errors="replace", timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"{path} cannot be run"
        raise SparkUnavailable(msg, detail=str(error), hint=_HINT) from None
    return done.stderr + done.stdout
