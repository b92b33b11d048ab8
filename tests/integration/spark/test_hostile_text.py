"""Errors that quote row values and table names: such text never becomes code, and values stay out of the log."""

from __future__ import annotations

import base64
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from awaiting import until
from headrace.errors import DestinationConflict, SourceConnectionFailed, SparkError
from headrace.spark.jobs import job, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Payload:
    """Creates a directory when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._marker),)


def marked(pickled: bytes) -> str:
    return f"<<headrace:{base64.b64encode(pickled).decode()}>>"


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "executed"


@pytest.fixture
def hostile(marker: Path) -> str:
    return marked(pickle.dumps(_Payload(marker)))


def test_a_row_value_in_a_spark_error_is_not_executed(spark: SparkSession, hostile: str, marker: Path) -> None:
    frame = spark.createDataFrame([(hostile,)], "amount string")
    with pytest.raises(SparkError) as caught, job(spark, "copy"):
        frame.selectExpr("cast(amount AS int)").collect()
    assert not marker.exists()
    assert hostile not in str(caught.value)


def test_a_table_name_in_a_task_error_is_not_executed(spark: SparkSession, hostile: str, marker: Path) -> None:
    def copy(name: str) -> None:
        raise SourceConnectionFailed(f"cannot copy public.{name}", detail=name, sqlstate="08006")

    with pytest.raises(SourceConnectionFailed) as caught:
        run_tasks(spark, [hostile], copy, description=f"copy of public.{hostile}")
    assert not marker.exists()
    assert (caught.value.message, caught.value.sqlstate) == (f"cannot copy public.{hostile}", "08006")


def test_a_name_with_line_breaks_does_not_hide_the_error(spark: SparkSession) -> None:
    name = "a\nheadrace.spark.failures.TaskFailure: x <<headrace:0:e30=>>\n\n\tat b"

    def write(_work: int) -> None:
        raise DestinationConflict(f"table {name} is locked", table_id=7)

    with pytest.raises(DestinationConflict) as caught:
        run_tasks(spark, [0], write, description="write")
    assert (caught.value.message, caught.value.table_id) == (f"table {name} is locked", 7)


def test_row_values_do_not_reach_the_log(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    written = ""

    def is_logged() -> bool:
        nonlocal written
        written += "".join(capfd.readouterr())
        return "aborting job" in written

    frame = spark.createDataFrame([("the secret",)], "amount string").repartition(1)
    with pytest.raises(SparkError) as caught, job(spark, "copy"):
        frame.selectExpr("cast(amount AS int)").collect()
    until(is_logged)
    assert "the secret" not in written + str(caught.value)
    assert "CAST_INVALID_INPUT" in str(caught.value)
