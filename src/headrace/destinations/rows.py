"""Rows on their way to a destination: not read yet, so that the destination says where and how they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["REJECTED_FIELDS", "BatchFunction", "RejectedFunction", "Rows"]

_Result = TypeVar("_Result")

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
"""From a batch to what takes its place; pickled."""

RejectedFunction = Callable[[pa.RecordBatch, pa.RecordBatch], pa.RecordBatch]
"""From values set aside (`REJECTED_FIELDS`), and the rows they stood in as these were read, to the values that stay
aside; pickled."""

REJECTED_FIELDS = pa.schema(
    [
        pa.field("key", pa.string()),  # a JSON object of the row's identity, as texts
        pa.field("column", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),  # what Postgres sent
        pa.field("commit_lsn", pa.int64()),  # NULL: the initial copy
        pa.field("tx_ordinal", pa.int64()),
    ]
)
"""The columns of `Rows.rejected`: what a quarantine table holds."""


class Rows(Protocol):
    """Rows of one Arrow schema, in parts. A part is read by one Spark task; few rows are read by the driver at once.

    Reading is repeatable and gives the same rows each time, except for ranges of a copy that have their own snapshot.
    """

    @property
    def arrow_schema(self) -> pa.Schema: ...

    def dataframe(self) -> DataFrame | Any:
        """As a Spark DataFrame. Every action on it reads the rows again."""

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], _Result]) -> list[_Result]:
        """Call `write` with the batches of each part, where the part is read, and bring back what it returned.

        `write` is pickled and its result small. A task that failed runs again, perhaps while the first still does:
        names must be fresh in each call, and what is not in the returned list must count for nothing.
        """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows here, in the driver, a batch at a time, the parts in order."""

    def mapped(self, function: BatchFunction, schema: pa.Schema, rejected: RejectedFunction) -> Rows:
        """Each batch passed through a function where it is read, which gives one of `schema`; `rejected` is
        applied to the values set aside.
        """

    def together(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> Rows:
        """All rows, passed through a function in one place: a table of this schema in, one of `schema` out, as one
        part.
        """

    def rejected(self) -> Rows | None:
        """The values that their Arrow type cannot hold and that are NULL here, as `REJECTED_FIELDS`; None: there are
        none. Ask after the rows were written: then it is known at no cost whether there are any.
        """
