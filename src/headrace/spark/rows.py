"""Rows as destinations get them: parts read by Spark tasks, or a few rows that the driver has already read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ..destinations.rows import REJECTED_FIELDS, BatchFunction, RejectedFunction
from .jobs import TaskReports, run_tasks, spark_schema, task_dataframe
from .part import PartReport, Read, Reader

__all__ = ["LocalRows", "TaskRows", "read_here"]

_Result = TypeVar("_Result")
_Work = tuple[Any, ...]
"""The parts that one task reads, one after the other."""

Function = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class _Task:
    """Everything a task does to its parts; pickled once per job."""

    reader: Reader
    schema: pa.Schema
    mapped: tuple[tuple[BatchFunction, pa.Schema], ...] = ()
    together: tuple[tuple[Function, pa.Schema], ...] = ()
    rejected_mapped: tuple[RejectedFunction, ...] = ()
    rejected: bool = False
    """Whether the values set aside are read in place of the rows."""

    @property
    def output(self) -> pa.Schema:
        return self.together[-1][1] if self.together else self.batch_schema

    @property
    def batch_schema(self) -> pa.Schema:
        return self.mapped[-1][1] if self.mapped else self.schema

    def reads(self, work: _Work) -> Iterator[Read]:
        for part in work:
            yield from self.reader(part)

    def batches(self, work: _Work, note: Callable[[PartReport], None]) -> Iterator[pa.RecordBatch]:
        """The rows of the work; `note` is told what reading came to, before the last batch is handed over."""
        report = PartReport()
        held: list[pa.RecordBatch] = []
        for read in self.reads(work):
            report = report.plus(read)
            batch = self._batch(read)
            if batch is None or not batch.num_rows:
                continue
            if self.together:
                held.append(batch)
                continue
            yield from held
            held = [batch]
        note(report)
        yield from self._passed(held) if self.together else held

    def _batch(self, read: Read) -> pa.RecordBatch | None:
        if self.rejected:
            return read.rejected and _aside(read.rejected, read.rows, self.rejected_mapped)
        batch = read.rows
        if batch.num_rows:
            batch = _with_schema(batch, self.schema)
            for function, schema in self.mapped:
                batch = _with_schema(function(batch), schema)
        return batch

    def _passed(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(held, self.batch_schema)
        for function, schema in self.together:
            table = function(table).cast(schema)
        yield from table.to_batches()


@dataclass(frozen=True, slots=True)
class _Known:
    """Reports that need no task any more."""

    reports: dict[int, PartReport]

    def values(self) -> dict[int, PartReport]:
        return self.reports


class TaskRows:
    """Implements `Rows`: each work is read by one task."""

    def __init__(
        self, spark: SparkSession, works: Sequence[_Work], reader: Reader, schema: pa.Schema, description: str
    ) -> None:
        self._spark = spark
        self._works = tuple(works)
        self._task = _Task(reader, schema)
        self._description = description
        # What each reading came to, of these rows and of those made from them: all read the same parts.
        self._readings: list[TaskReports | _Known] = []

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._task.output

    def dataframe(self) -> DataFrame:
        read = partial(_read_work, self._task, self._reporting())
        works = list(enumerate(self._works))
        return task_dataframe(self._spark, works, read, self.arrow_schema, description=self._description)

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], _Result]) -> list[_Result]:
        function = partial(_write_work, self._task, write, self._reporting())
        return run_tasks(self._spark, list(enumerate(self._works)), function, description=self._description)

    def batches(self) -> Iterator[pa.RecordBatch]:
        reports: dict[int, PartReport] = {}
        self._readings.append(_Known(reports))
        for index, work in enumerate(self._works):
            yield from self._task.batches(work, partial(reports.__setitem__, index))

    def mapped(self, function: BatchFunction, schema: pa.Schema, rejected: RejectedFunction) -> TaskRows:
        assert not self._task.together, "batches are mapped before they come together"
        mapped = (*self._task.mapped, (function, schema))
        rejected_mapped = (*self._task.rejected_mapped, rejected)
        return self._variant(replace(self._task, mapped=mapped, rejected_mapped=rejected_mapped), self._works)

    def together(self, function: Function, schema: pa.Schema) -> TaskRows:
        task = replace(self._task, together=(*self._task.together, (function, schema)))
        return self._variant(task, self._in_one())

    def rejected(self) -> TaskRows | None:
        if self.reports() and not self.report().rejected:
            return None
        mapped = self._task.rejected_mapped
        task = _Task(self._task.reader, REJECTED_FIELDS, rejected_mapped=mapped, rejected=True)
        return self._variant(task, self._works)

    def reports(self) -> dict[int, PartReport]:
        """What reading each work came to, by the fullest reading so far; grows while tasks end."""
        readings = [reading.values() for reading in self._readings]
        return max(readings, key=lambda reading: sum(report.rows for report in reading.values()), default={})

    def report(self) -> PartReport:
        return PartReport.total([PartReport(), *self.reports().values()])

    def close(self) -> None:
        """Forget what the tasks reported, once it was read: the driver keeps it otherwise."""
        known = self.reports()
        for reading in self._readings:
            if isinstance(reading, TaskReports):
                reading.close()
        self._readings[:] = [_Known(known)]

    def _in_one(self) -> list[_Work]:
        return [tuple(part for work in self._works for part in work)]

    def _reporting(self) -> TaskReports:
        reports = TaskReports(self._spark)
        self._readings.append(reports)
        return reports

    def _variant(self, task: _Task, works: Sequence[_Work]) -> TaskRows:
        rows = TaskRows(self._spark, works, task.reader, task.schema, self._description)
        rows._task, rows._readings = task, self._readings
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class LocalRows:
    """Implements `Rows` for few rows, read already."""

    spark: SparkSession
    table: pa.Table
    found: pa.Table = field(default_factory=REJECTED_FIELDS.empty_table)
    read: PartReport = field(default_factory=PartReport)
    given: pa.Table | None = None
    """The rows as they were read, where they are others by now."""

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.table.schema

    def dataframe(self) -> DataFrame:
        # With the schema that tasks would give it: Spark takes a timestamp without time zone for one with, otherwise.
        return self.spark.createDataFrame(self.table, spark_schema(self.table.schema))

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], _Result]) -> list[_Result]:
        return [write(iter(self.table.to_batches()))]

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.table.to_batches())

    def mapped(self, function: BatchFunction, schema: pa.Schema, rejected: RejectedFunction) -> LocalRows:
        return self._made(_mapped(self.table, function, schema), rejected)

    def together(self, function: Function, schema: pa.Schema) -> LocalRows:
        return replace(self, table=function(self.table).cast(schema))

    def rejected(self) -> LocalRows | None:
        return LocalRows(self.spark, self.found) if self.found.num_rows else None

    def report(self) -> PartReport:
        return self.read

    def close(self) -> None:
        """Nothing is held elsewhere."""

    def _made(self, table: pa.Table, rejected: RejectedFunction) -> LocalRows:
        given = self.table if self.given is None else self.given
        found = self.found
        if found.num_rows:
            found = pa.Table.from_batches([_aside(_in_one_batch(found), _in_one_batch(given), (rejected,))])
        return replace(self, table=table, found=found, given=given)


def read_here(spark: SparkSession, parts: Iterable[Any], reader: Reader, schema: pa.Schema) -> LocalRows:
    """Read the parts in the driver, at once."""
    reads = [read for part in parts for read in reader(part)]
    rows = [_with_schema(read.rows, schema) for read in reads]
    rejected = [read.rejected for read in reads if read.rejected is not None]
    report = reduce(PartReport.plus, reads, PartReport())
    return LocalRows(
        spark, pa.Table.from_batches(rows, schema), pa.Table.from_batches(rejected, REJECTED_FIELDS), report
    )


def _read_work(task: _Task, reports: TaskReports, numbered: tuple[int, _Work]) -> Iterator[pa.RecordBatch]:
    index, work = numbered
    return task.batches(work, partial(reports.put, index))


def _write_work(
    task: _Task,
    write: Callable[[Iterator[pa.RecordBatch]], _Result],
    reports: TaskReports,
    numbered: tuple[int, _Work],
) -> _Result:
    return write(_read_work(task, reports, numbered))


def _aside(rejected: pa.RecordBatch, rows: pa.RecordBatch, functions: Iterable[RejectedFunction]) -> pa.RecordBatch:
    for function in functions:
        rejected = function(rejected, rows)
    return _with_schema(rejected, REJECTED_FIELDS)


def _in_one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(table.to_struct_array().combine_chunks())


def _mapped(table: pa.Table, function: BatchFunction, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches((_with_schema(function(batch), schema) for batch in table.to_batches()), schema)


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns; only nullability, which readers do not track, is that of the schema."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
