"""Rows that pass through Spark on their way: read by tasks, changed by a DataFrame, handed on as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from ..destinations.rows import BatchFunction, FrameFunction, RejectedFunction
from .jobs import spark_schema, write_partitions

if TYPE_CHECKING:
    from .rows import TaskRows

__all__ = ["FrameRows"]

_Result = TypeVar("_Result")
_Together = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class _After:
    """What is done to batches that come from Spark; pickled."""

    schema: pa.Schema
    mapped: tuple[tuple[BatchFunction, pa.Schema], ...] = ()
    together: tuple[tuple[_Together, pa.Schema], ...] = ()

    @property
    def output(self) -> pa.Schema:
        last = self.together or self.mapped
        return last[-1][1] if last else self.schema

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = (self._mapped(batch.cast(self.schema)) for batch in batches)
        if not self.together:
            yield from given
            return
        schema = self.mapped[-1][1] if self.mapped else self.schema
        table = pa.Table.from_batches(given, schema)
        for function, after in self.together:
            table = function(table).cast(after)
        yield from table.to_batches()

    def _mapped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for function, _ in self.mapped:
            batch = function(batch)
        return batch


class FrameRows:
    """Implements `Rows`."""

    def __init__(
        self, source: TaskRows, function: FrameFunction, schema: pa.Schema, rejected: RejectedFunction
    ) -> None:
        self._source, self._function, self._rejected = source, function, rejected
        self._after = _After(schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._after.output

    def dataframe(self) -> DataFrame:
        return self._made_of(self._source.dataframe())

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], _Result]) -> list[_Result]:
        after = self._after

        def written(batches: Iterator[pa.RecordBatch]) -> _Result:
            return write(after.batches(batches))

        return write_partitions(self._function(self._source.dataframe()), written, description=self._source.description)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for part in self._source.one_by_one():
            yield from self._after.batches(self._function(part.dataframe()).toArrow().to_batches())

    def mapped(self, function: BatchFunction, schema: pa.Schema, rejected: RejectedFunction) -> FrameRows:
        assert not self._after.together, "batches are mapped before they come together"
        variant = FrameRows(self._source, self._function, self._after.schema, self._then(rejected))
        variant._after = replace(self._after, mapped=(*self._after.mapped, (function, schema)))
        return variant

    def through(self, function: FrameFunction, schema: pa.Schema, rejected: RejectedFunction) -> FrameRows:
        return FrameRows(self._source, lambda frame: function(self._made_of(frame)), schema, self._then(rejected))

    def together(self, function: _Together, schema: pa.Schema) -> FrameRows:
        variant = FrameRows(self._source.in_one(), self._function, self._after.schema, self._rejected)
        variant._after = replace(self._after, together=(*self._after.together, (function, schema)))
        return variant

    def rejected(self) -> TaskRows | None:
        return self._source.rejected(self._rejected)

    def _then(self, rejected: RejectedFunction) -> RejectedFunction:
        before = self._rejected
        return lambda values, rows: rejected(before(values, rows), rows)

    def _made_of(self, frame: DataFrame) -> DataFrame:
        result: DataFrame = self._function(frame)
        if self._after == _After(self._after.schema):
            return result
        return result.mapInArrow(self._after.batches, spark_schema(self.arrow_schema))
