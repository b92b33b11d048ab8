"""Works on real workers: order, retries, errors, types, reports, labels and cancelling."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from awaiting import until
from headrace.errors import (
    RetryPolicy,
    SlotNotFound,
    SourceConnectionFailed,
    SparkError,
    SpoolIoError,
)
from headrace.spark.jobs import TaskReports, cancel, job, run_tasks, task_dataframe
from headrace.spark.labels import label_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_SECONDS = 60


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_results_come_in_the_order_of_the_works(spark: SparkSession) -> None:
    works = [7, 3, 9, 1, 5]
    assert run_tasks(spark, works, lambda work: work * work, description="squares") == [49, 9, 81, 1, 25]


def test_a_work_and_a_result_may_be_anything_that_pickles(spark: SparkSession) -> None:
    offset = 10
    assert run_tasks(spark, [{"a": 1}], lambda work: (work, offset, None), description="any") == [({"a": 1}, 10, None)]


def test_works_may_be_large(spark: SparkSession) -> None:
    works = [bytes([number]) * (1 << 20) for number in range(4)]
    assert run_tasks(spark, works, lambda work: (work[0], len(work)), description="large") == [
        (number, 1 << 20) for number in range(4)
    ]


def test_no_works_start_no_job(spark: SparkSession) -> None:
    def never(_work: object) -> None:
        raise AssertionError

    assert run_tasks(spark, [], never, description="nothing") == []


def test_each_work_is_a_task_of_its_own(spark: SparkSession) -> None:
    def partition(_work: int) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return context.partitionId()

    assert run_tasks(spark, list(range(5)), partition, description="partitions") == [0, 1, 2, 3, 4]


def attempts(directory: Path) -> int:
    return len(list(directory.iterdir()))


def test_a_timed_error_is_retried_by_spark_alone(spark: SparkSession, tmp_path: Path) -> None:
    def third_time_lucky(work: str) -> str:
        import uuid

        (tmp_path / uuid.uuid4().hex).touch()
        if len(list(tmp_path.iterdir())) < 3:
            msg = "gone"
            raise SourceConnectionFailed(msg)
        return work

    assert run_tasks(spark, ["a"], third_time_lucky, description="lucky") == ["a"]
    assert attempts(tmp_path) == 3


def test_a_timed_error_that_stays_arrives_as_itself(spark: SparkSession, tmp_path: Path) -> None:
    def fails(_work: str) -> None:
        import uuid

        (tmp_path / uuid.uuid4().hex).touch()
        raise SourceConnectionFailed("server gone", detail="reset", hint="call Ann", sqlstate="08006")

    with pytest.raises(SourceConnectionFailed) as raised:
        run_tasks(spark, ["a"], fails, description="copy")
    error = raised.value
    assert (str(error), error.hint, error.sqlstate, error.retry) == (
        "server gone: reset",
        "call Ann",
        "08006",
        RetryPolicy.TIMED,
    )
    assert attempts(tmp_path) == 4


def test_an_error_that_time_does_not_mend_is_not_retried(spark: SparkSession, tmp_path: Path) -> None:
    def fails(_work: str) -> None:
        import uuid

        (tmp_path / uuid.uuid4().hex).touch()
        raise SlotNotFound("no slot", detail="headrace_1", sqlstate="42704")

    with pytest.raises(SlotNotFound, match="no slot: headrace_1"):
        run_tasks(spark, ["a"], fails, description="copy")
    assert attempts(tmp_path) == 1


def test_a_foreign_error_brings_no_row_along(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    def fails(_work: str) -> pa.Array:
        return pc.cast(pa.array(["secret row"]), pa.int64())

    with pytest.raises(SparkError) as raised:
        run_tasks(spark, ["a"], fails, description="copy of public.a")
    assert str(raised.value).startswith("copy of public.a failed in a task: ArrowInvalid at ")
    # Neither the exception nor what the JVM logs.
    assert "secret row" not in str(raised.value) + capfd.readouterr().err


def test_a_worker_that_dies_is_a_spark_error(spark: SparkSession) -> None:
    with pytest.raises(SparkError, match=r"copy failed in Spark: .*a Python worker died"):
        run_tasks(spark, ["a"], lambda _work: os._exit(9), description="copy")


TYPES = {
    "flag": (pa.bool_(), [True, None]),
    "small": (pa.int16(), [-3, None]),
    "number": (pa.int32(), [5, None]),
    "big": (pa.int64(), [2**62, None]),
    "single": (pa.float32(), [1.5, None]),
    "double": (pa.float64(), [-0.1, None]),
    "amount": (pa.decimal128(38, 9), [Decimal("12345678901234567890.123456789"), None]),
    "name": (pa.string(), ["żółw", None]),
    "bytes": (pa.binary(), [b"\x00\xff", None]),
    "day": (pa.date32(), [date(1969, 7, 20), None]),
    "at": (pa.timestamp("us", tz="UTC"), [datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC), None]),
    "local_at": (pa.timestamp("us"), [datetime(1900, 3, 29, 2, 30, 0, 1), None]),  # noqa: DTZ001
    "numbers": (pa.list_(pa.int64()), [[1, None, 3], None]),
    "names": (pa.list_(pa.string()), [["a", None], []]),
    "moments": (pa.list_(pa.timestamp("us", tz="UTC")), [[datetime(2026, 1, 1, tzinfo=UTC)], None]),
    "tags": (pa.map_(pa.string(), pa.string()), [[("a", "1"), ("b", None)], None]),
    "pair": (pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": None}, None]),
}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_values_go_through_spark_unchanged(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        table = pa.table({name: pa.array(values, kind) for name, (kind, values) in TYPES.items()})
        frame = task_dataframe(spark, [table], lambda t: iter(t.to_batches()), table.schema, description="types")
        back = frame.toArrow()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert back.schema.names == table.schema.names
    for name in table.schema.names:
        assert back.column(name).to_pylist() == table.column(name).to_pylist(), name
    kinds = dict(frame.dtypes)
    assert (kinds["at"], kinds["local_at"], kinds["amount"]) == ("timestamp", "timestamp_ntz", "decimal(38,9)")


def test_columns_that_cannot_be_null_stay_so(spark: SparkSession) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    batch = pa.record_batch([[1, 2], ["a", None]], schema=schema)
    frame = task_dataframe(spark, [batch], lambda b: iter([b]), schema, description="rows")
    assert [field.nullable for field in frame.schema] == [False, True]
    assert [tuple(row) for row in frame.orderBy("id").collect()] == [(1, "a"), (2, None)]


def test_layouts_that_spark_does_not_know_are_cast(spark: SparkSession) -> None:
    columns = {
        "text": pa.array(["a", None]).cast(pa.string_view()),
        "bytes": pa.array([b"a", None]).cast(pa.binary_view()),
        "word": pa.array(["x", "x"]).dictionary_encode(),
        "at": pa.array([0, None], pa.timestamp("us", tz="Europe/Warsaw")),
    }
    table = pa.table(columns)

    def read(_work: int) -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()

    frame = task_dataframe(spark, [0], read, table.schema, description="layouts")
    rows = [tuple(row.values()) for row in frame.toArrow().to_pylist()]
    assert rows == [("a", b"a", "x", datetime(1970, 1, 1, tzinfo=UTC)), (None, None, "x", None)]


def test_a_dataframe_reads_when_asked_and_each_time(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])

    def read(work: int) -> Iterator[pa.RecordBatch]:
        import uuid

        (tmp_path / uuid.uuid4().hex).touch()
        yield pa.record_batch([[work, work + 1]], schema=schema)
        yield pa.record_batch([[work + 2]], schema=schema)

    frame = task_dataframe(spark, [10, 20], read, schema, description="lazy")
    assert attempts(tmp_path) == 0
    assert sorted(row[0] for row in frame.collect()) == [10, 11, 12, 20, 21, 22]
    assert frame.count() == 6
    assert attempts(tmp_path) == 4


def test_a_dataframe_of_no_works_has_its_columns(spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    frame = task_dataframe(spark, [], lambda _work: iter(()), schema, description="empty")
    assert (frame.count(), frame.dtypes) == (0, [("id", "bigint"), ("at", "timestamp_ntz")])


def test_an_error_while_reading_a_dataframe_arrives_as_itself(spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64())])

    def read(_work: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[1]], schema=schema)
        raise SpoolIoError("no space", detail="/spool")

    frame = task_dataframe(spark, [0], read, schema, description="reading")
    with pytest.raises(SpoolIoError, match="no space: /spool"), job(spark, "write"):
        frame.write.format("noop").mode("overwrite").save()


def test_a_failing_query_quotes_no_row(spark: SparkSession) -> None:
    with pytest.raises(SparkError) as raised, job(spark, "merge"):
        spark.createDataFrame([("secret row",)], "v string").selectExpr("cast(v as int)").collect()
    assert "CAST_INVALID_INPUT" in str(raised.value)
    assert "secret row" not in str(raised.value)


def test_a_query_that_cannot_be_planned_says_why(spark: SparkSession) -> None:
    with (
        pytest.raises(SparkError, match=r"merge failed in Spark: \[TABLE_OR_VIEW_NOT_FOUND\].*nowhere"),
        job(spark, "merge"),
    ):
        spark.sql("SELECT * FROM nowhere").collect()


def test_tasks_report_beside_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    with TaskReports(spark) as reports, TaskReports(spark) as others:

        def read(work: int) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch([list(range(work))], schema=schema)
            reports.put(work, {"rows": work})
            mark = tmp_path / str(work)
            if not mark.exists():  # fails once after it has reported
                mark.touch()
                raise SourceConnectionFailed("gone")

        frame = task_dataframe(spark, [2, 3], read, schema, description="reporting")
        assert reports.values() == {}
        assert frame.count() == 5
        assert reports.values() == {2: {"rows": 2}, 3: {"rows": 3}}
        assert frame.count() == 5
        assert reports.values() == {2: {"rows": 2}, 3: {"rows": 3}}
        assert others.values() == {}
    assert reports.values() == {}


def test_tasks_of_run_tasks_report_too(spark: SparkSession) -> None:
    with TaskReports(spark) as reports:
        run_tasks(spark, [0, 1], lambda work: reports.put(work, f"w{work}"), description="reporting")
        assert reports.values() == {0: "w0", 1: "w1"}


def test_a_job_bears_its_label_and_leaves_the_thread_as_it_was(spark: SparkSession) -> None:
    def properties(_work: int) -> tuple[str | None, ...]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return tuple(context.getLocalProperty(f"spark.{n}") for n in ("job.description", "scheduler.pool", "job.tags"))

    context = spark.sparkContext

    def labels() -> tuple[str | None, ...]:
        return tuple(context.getLocalProperty(f"spark.{name}") for name in ("job.description", "scheduler.pool"))

    def run() -> list[tuple[str | None, ...]]:
        label_thread(spark, "pipeline-1")
        with job(spark, "outer", pool="copies"):
            found = run_tasks(spark, [0], properties, description="inner", pool="batches")
            return [*found, labels()]

    # In a thread of its own: what labels it stays with it.
    with ThreadPoolExecutor(1, "labelled") as threads:
        [(description, pool, tags), outer] = threads.submit(run).result()
        assert (description, pool) == ("inner", "batches")
        assert tags is not None
        assert "pipeline-1" in tags.split(",")  # beside those that Spark itself adds
        assert outer == ("outer", "copies")
        assert threads.submit(labels).result() == (None, "pipeline-1-labelled_0")
    assert list(context.getJobTags()) == []


def test_a_cancelled_job_ends_and_its_worker_too(spark: SparkSession, tmp_path: Path) -> None:
    started = tmp_path / "started"
    outcome: list[object] = []

    def waits(_work: int) -> None:
        whole = tmp_path / "whole"
        whole.write_text(str(os.getpid()))
        whole.rename(started)
        while not (tmp_path / "never").exists():
            time.sleep(0.01)

    def run() -> None:
        label_thread(spark, "stop-me")
        try:
            run_tasks(spark, [0], waits, description="waiting")
        except SparkError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    until(started.exists)
    cancel(spark, "another-tag")
    assert thread.is_alive()
    cancel(spark, "stop-me")
    thread.join(DEADLINE_SECONDS)
    assert outcome == ["waiting failed in Spark: the job was cancelled"]
    until(lambda: not alive(int(started.read_text())))
