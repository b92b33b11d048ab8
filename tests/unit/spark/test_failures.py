from __future__ import annotations

import base64
import errno
import json
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PythonException

from headrace import errors
from headrace.errors import DestinationConflict, RetryPolicy, SourceConnectionFailed, SparkError, SpoolGap
from headrace.spark.failures import TaskFailure, as_headrace_error, from_spark, new_mark


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


MARK = new_mark()


def worker_text(failure: TaskFailure) -> str:
    return f"Job aborted: Traceback\n  File x\nheadrace.spark.failures.TaskFailure: {failure}\n\n\tat java"


def test_the_driver_rebuilds_what_the_task_raised() -> None:
    sent = SourceConnectionFailed("gone", detail="reset", hint="wait", retry=RetryPolicy.NONE, sqlstate="08006")
    error = from_spark(RuntimeError(worker_text(TaskFailure(sent, MARK))), "copy", MARK)
    assert (type(error), vars(error)) == (SourceConnectionFailed, vars(sent))


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name not in ("RetryPolicy", "IllegalTransition")])
def test_every_error_arrives_as_itself(name: str) -> None:
    sent = getattr(errors, name)("what \n<<happened>>")
    error = from_spark(RuntimeError(worker_text(TaskFailure(sent, MARK))), "copy", MARK)
    assert (type(error), str(error), error.hint, error.retry) == (type(sent), str(sent), sent.hint, sent.retry)
    assert {**vars(sent), "retry": sent.retry, "hint": sent.hint} == vars(error)


def test_an_error_of_a_class_unknown_to_us_arrives_as_the_nearest_known_one() -> None:
    class Locked(DestinationConflict):
        pass

    sent = Locked("locked", table_id=3)
    error = from_spark(RuntimeError(worker_text(TaskFailure(sent, MARK))), "copy", MARK)
    assert type(error) is DestinationConflict
    assert error.table_id == 3


def encoded(**changes: object) -> str:
    sent = {"class": "SpoolGap", "retry": "none", "message": "m", **changes}
    return base64.b64encode(json.dumps(sent).encode()).decode()


@pytest.mark.parametrize(
    "line",
    [
        f"headrace.spark.failures.TaskFailure: gap <<headrace:{new_mark()}:{encoded()}>>",
        f"ValueError: gap <<headrace:{MARK}:{encoded()}>>",
        f"headrace.spark.failures.TaskFailure: gap <<headrace:{MARK}:{encoded()}>> and more",
        f"headrace.spark.failures.TaskFailure: gap <<headrace:{MARK}:{encoded(**{'class': 'eval'})}>>",
        f"headrace.spark.failures.TaskFailure: gap <<headrace:{MARK}:{encoded(message=7)}>>",
        f"headrace.spark.failures.TaskFailure: gap <<headrace:{MARK}:{encoded(retry='often')}>>",
        f"headrace.spark.failures.TaskFailure: gap <<headrace:{MARK}:gASV>>",
    ],
    ids=["mark", "exception", "not at the end", "class", "type", "retry", "no json"],
)
def test_text_that_is_not_what_a_task_of_ours_sent_is_ignored(line: str) -> None:
    error = from_spark(RuntimeError(f"Traceback\n{line}\n"), "copy", MARK)
    assert str(error) == "copy failed in Spark: RuntimeError"


def test_nothing_is_read_from_the_text_of_a_job_without_a_mark() -> None:
    assert type(from_spark(RuntimeError(worker_text(TaskFailure(SpoolGap("gap"), MARK))), "copy")) is SparkError


def test_a_value_in_brackets_is_not_taken_for_an_error_condition() -> None:
    error = Py4JError("java.lang.IllegalStateException: [JOB_FAILED]\nbad value '[SECRET]'\n[SECRET]")
    assert (
        str(from_spark(error, "copy")) == "copy failed in Spark: Py4JError, JOB_FAILED, java.lang.IllegalStateException"
    )


@pytest.mark.parametrize("text", ["nothing of ours, 'a row'", "<<headrace:>>", ""])
def test_any_other_text_is_not_repeated(text: str) -> None:
    error = from_spark(RuntimeError(text), "copy", MARK)
    assert isinstance(error, SparkError)
    assert str(error) == "copy failed in Spark: RuntimeError"


def test_a_module_that_workers_lack_is_named() -> None:
    text = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n"
        '  File "/x/worker.py", line 1, in main\n'
        "ModuleNotFoundError: No module named 'shop.transforms'\n"
        "\tat org.apache.spark.Thing(Thing.scala:1)\n"
    )
    error = from_spark(PythonException(text), "a batch", None)
    assert "the module shop.transforms where tasks run" in error.hint
    in_task = as_headrace_error(ModuleNotFoundError("No module named 'pyroaring'", name="pyroaring"), "a batch")
    assert "the module pyroaring where tasks run" in in_task.hint


def test_a_full_disk_of_a_task_is_named(tmp_path: Path) -> None:
    error = as_headrace_error(OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "part")), "a batch")
    assert error.hint.startswith(f"free space on the disk of {tmp_path}/part, or enlarge it (/")


def test_places_leave_files_of_compiled_libraries_out() -> None:
    with pytest.raises(pa.ArrowInvalid) as raised:
        pa.array(["x"]).cast(pa.int32())
    detail = as_headrace_error(raised.value, "a batch").detail
    assert detail is not None
    assert "test_failures.py" in detail
    assert ".pxi" not in detail
    assert ".pyx" not in detail
