"""What Java says reaches standard error, except for what Ivy and the JVM say at every start."""

from __future__ import annotations

import os

import pytest
import structlog
from structlog.testing import capture_logs

from headrace.spark.java_output import JavaOutput

IVY = (
    ":: loading settings :: url = jar:file:/ivysettings.xml\n"
    "Ivy Default Cache set to: /home/me/.ivy2/cache\n"
    "The jars for the packages stored in: /home/me/.ivy2/jars\n"
    "org.example#thing added as a dependency\n"
    "\tconfs: [default]\n"
    "\n"
    "downloading https://example.com/thing.jar ...\n"
    "\t[SUCCESSFUL ] org.example#thing;1.0!thing.jar (12ms)\n"
    "WARNING: Using incubator modules: jdk.incubator.vector\n"
)
OTHER = "Exception in thread main\n26/01/01 WARN something\n"
TRACE = (
    "java.io.IOException: no\n"
    "\tat org.example.Thing.run(Thing.java:1)\n"
    "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
    "Caused by: java.lang.Error\n"
    "\t... 12 more\n"
)


def test_only_the_report_is_kept_back(capfd: pytest.CaptureFixture[str]) -> None:
    output = JavaOutput()
    with output.writing() as descriptor:
        os.write(descriptor, (IVY + OTHER).encode())
    output.join(10)
    assert capfd.readouterr().err == OTHER
    assert output.problem() is None


def test_stack_traces_are_logged_at_debug_level_only(capfd: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()  # a test before may have left a level above debug
    output = JavaOutput()
    with capture_logs() as logged:
        with output.writing() as descriptor:
            os.write(descriptor, TRACE.encode())
        output.join(10)
    assert capfd.readouterr().err == "java.io.IOException: no\n"
    assert [entry["log_level"] for entry in logged] == ["debug"] * 4


def test_what_was_not_found_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    output = JavaOutput()
    with output.writing() as descriptor:
        os.write(descriptor, b":: problems summary ::\n\t:: org.example#nothing;1.0: not found\n")
        os.write(descriptor, b"\t\tunresolved dependency: org.example#nothing;1.0: not found\n")
    output.join(10)
    assert output.problem() == "unresolved dependency: org.example#nothing;1.0: not found"
    assert capfd.readouterr().err == ""
