from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import RetryPolicy, SparkUnavailable
from headrace.spark.java import find_java


def java(home: Path, says: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("says", "version"), [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "21" 2023-09-19', 21)]
)
def test_a_java_that_spark_runs_on_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: int
) -> None:
    program = java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = find_java()
    assert (found.path, found.version) == (program, version)


def test_without_java_home_it_is_looked_for_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    assert find_java().path == program


@pytest.mark.parametrize(
    ("says", "named"),
    [
        ('openjdk version "25" 2025-09-16', "Java 25"),
        ('java version "1.8.0_392"', "Java 8"),
        ('openjdk version "11.0.2"', "Java 11"),
        ("segmentation fault", "does not say which Java it is"),
    ],
)
def test_another_java_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, named: str
) -> None:
    program = java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match=named) as raised:
        find_java()
    assert str(program) in str(raised.value)
    assert "17 or 21" in raised.value.hint
    assert raised.value.retry is RetryPolicy.MANUAL


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match=r"JAVA_HOME is .* no bin/java"):
        find_java()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="there is none"):
        find_java()


def test_a_java_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, "").chmod(0o644)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="cannot be run"):
        find_java()
