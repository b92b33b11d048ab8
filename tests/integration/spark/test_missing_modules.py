"""Executors whose Python lacks Headrace or a dependency, or does not exist: the error says what to install where."""

from __future__ import annotations

import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import SparkError
from headrace.spark.jobs import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fail_on(python: Path | str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkError:
    """Run a task with another Python, and return the error that the driver raises."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    with pytest.raises(SparkError) as caught:
        run_tasks(spark, [1], lambda number: number, description="copy of public.t")
    assert "no Python worker could be started" in str(caught.value)
    assert "executor driver" in str(caught.value)
    return caught.value


def test_headrace_is_not_installed_on_the_executor(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "bare", with_pip=False)
    error = fail_on(tmp_path / "bare" / "bin" / "python", spark, monkeypatch)
    assert "install the Python package that has the module headrace where tasks run" in error.hint


def test_a_dependency_is_not_installed_on_the_executor(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    (packages,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    (packages / "headrace.pth").write_text(str(Path(__file__).parents[3] / "src"))
    error = fail_on(tmp_path / "bare" / "bin" / "python", spark, monkeypatch)
    assert "the module numpy where tasks run" in error.hint


def test_the_executor_has_no_such_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    error = fail_on("/nowhere/bin/python3", spark, monkeypatch)
    assert "there is no Python at /nowhere/bin/python3 where tasks run: set spark.pyspark.python" in error.hint
    # The Python of the driver still works.
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    assert run_tasks(spark, [1], lambda number: number, description="copy of public.t") == [1]
