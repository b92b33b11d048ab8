"""Work on the executors: one partition per piece of work, over a range of numbers.

What returns rows is `mapInArrow`, what returns a result per work a job of an RDD: it passes no planner, which halves
what a small job costs (48 ms against 100, warm; 115 against 335 at first).

The function and the works are pickled with cloudpickle: functions of modules that the executors can import go by name,
nested functions and those of `__main__` by value.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ..errors import HeadraceError, KeyRangesOvertaken, RetryPolicy, SourceLockTimeout
from .failures import TaskFailure, as_headrace_error
from .labels import cancel, job
from .reports import TaskReports

__all__ = ["TaskReports", "cancel", "job", "run_tasks", "spark_schema", "task_dataframe"]

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")

_Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# A task that is run again at once meets the same: whoever holds the lock waits for this very copy, perhaps.
_NOT_AT_ONCE = (SourceLockTimeout, KeyRangesOvertaken)


def run_tasks(
    spark: SparkSession,
    works: Sequence[_Work],
    function: Callable[[_Work], _Result],
    *,
    description: str,
    pool: str | None = None,
) -> list[_Result]:
    """Call the function with each work, on the executors, and return the results in the order of the works.

    A call that fails is repeated by Spark, up to `task_max_failures` times in all, perhaps while the first still runs;
    a HeadraceError that is not to be retried by time, or not at once, is not. Works and results are pickled and should
    be small.

    Raises:
        HeadraceError: what a task raised, as itself; a SparkError for anything else.
    """
    if not works:
        return []
    pickled = _pickled(works)

    def task(indexes: Iterable[int]) -> Iterator[bytes]:
        for index in indexes:
            result = _outcome(function, pickle.loads(pickled[index]), description)  # noqa: S301 (our own)
            yield cloudpickle.dumps(result)

    with job(spark, description, pool=pool):
        results = spark.sparkContext.range(0, len(works), 1, len(works)).mapPartitions(task).collect()
    return [_succeeded(result) for result in results]


def _succeeded(outcome: bytes) -> Any:
    """The result in an outcome. Raises the failure in it."""
    failure, result = pickle.loads(outcome)  # noqa: S301 (our own)
    if failure is not None:
        raise failure
    return result


def task_dataframe(
    spark: SparkSession,
    works: Sequence[_Work],
    read: Callable[[_Work], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    *,
    description: str,
) -> DataFrame:
    """The rows of all works as a DataFrame: each action reads them anew, one task per work.

    Batches must have the columns of `schema`; those whose layout Spark cannot take (views, dictionaries, time zones
    other than UTC) are cast. Run actions on it inside `with job(…)`, which turns Spark's exceptions into what the task
    raised.
    """
    struct = spark_schema(schema)
    layout = to_arrow_schema(struct)
    if not works:
        return spark.createDataFrame(layout.empty_table(), struct)
    pickled = _pickled(works)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index in _indexes(batches):
            yield from _fitting(read, pickle.loads(pickled[index]), layout, description)  # noqa: S301 (our own)

    return _numbers(spark, len(works)).mapInArrow(task, struct)


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema: timestamps with a time zone are TIMESTAMP, those without TIMESTAMP_NTZ."""
    plain = pa.schema([field.with_type(_plain(field.type)) for field in schema])
    return from_arrow_schema(plain, prefer_timestamp_ntz=True)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without views, which Spark does not know."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, count)


def _pickled(works: Sequence[_Work]) -> list[bytes]:
    # One by one, so that a task unpickles no work but its own.
    return [cloudpickle.dumps(work) for work in works]


def _indexes(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    # One number per partition: this is no loop over rows.
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _outcome(function: Callable[[Any], Any], work: Any, description: str) -> tuple[HeadraceError | None, Any]:
    try:
        return None, function(work)
    except Exception as error:  # noqa: BLE001 (all of them go to the driver)
        failure = as_headrace_error(error, description)
    if failure.retry is RetryPolicy.TIMED and not isinstance(failure, _NOT_AT_ONCE):
        raise TaskFailure(failure) from None
    # As a result, because Spark repeats whatever is raised.
    return failure, None


def _fitting(
    read: Callable[[Any], Iterator[pa.RecordBatch]], work: Any, layout: pa.Schema, description: str
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in read(work):
            yield batch if batch.schema.equals(layout) else batch.cast(layout)
    except Exception as error:  # noqa: BLE001 (all of them go to the driver)
        failure = as_headrace_error(error, description)
    else:
        return
    raise TaskFailure(failure) from None
