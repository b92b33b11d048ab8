from __future__ import annotations

import pytest

from headrace.errors import RetryPolicy, SourceConnectionFailed, SparkError
from headrace.spark.failures import TaskFailure, as_headrace_error, from_spark


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001
        return caught


def test_an_error_of_ours_passes_as_it_is() -> None:
    error = SourceConnectionFailed("gone")
    assert as_headrace_error(error, "copy") is error


def test_the_message_of_a_foreign_error_stays_behind() -> None:
    error = as_headrace_error(raised(ValueError("invalid value 'a row'")), "copy of public.a")
    assert isinstance(error, SparkError)
    assert "a row" not in str(error)
    assert str(error).startswith("copy of public.a failed in a task: ValueError at test_failures.py:")


def test_an_operating_system_error_says_what_it_is_about() -> None:
    error = as_headrace_error(raised(FileNotFoundError(2, "No such file", "/spool/1.arrow")), "copy")
    assert "/spool/1.arrow" in str(error)


def test_the_driver_rebuilds_what_the_task_raised() -> None:
    sent = SourceConnectionFailed("gone", detail="reset", hint="wait", retry=RetryPolicy.NONE, sqlstate="08006")
    text = f"Job aborted: Traceback\n  File x\nheadrace.spark.failures.TaskFailure: {TaskFailure(sent)}\n\n\tat java"
    error = from_spark(RuntimeError(text), "copy")
    assert isinstance(error, SourceConnectionFailed)
    assert (error.message, error.detail, error.hint, error.retry, error.sqlstate) == (
        "gone",
        "reset",
        "wait",
        RetryPolicy.NONE,
        "08006",
    )


@pytest.mark.parametrize("text", ["nothing of ours, 'a row'", "<<headrace:>>", ""])
def test_any_other_text_is_not_repeated(text: str) -> None:
    error = from_spark(RuntimeError(text), "copy")
    assert isinstance(error, SparkError)
    assert str(error) == "copy failed in Spark: RuntimeError"
