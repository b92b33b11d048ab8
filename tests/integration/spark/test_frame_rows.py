"""spark.frame_rows: rows of tasks that pass through a DataFrame are the same by each way out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as sf

from headrace.destinations.rows import REJECTED_FIELDS
from headrace.errors import DestinationRejected
from headrace.spark.frame_rows import FrameRows
from headrace.spark.part import Read
from headrace.spark.rows import LocalRows, TaskRows, read_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

GIVEN = pa.schema([("n", pa.int64()), ("word", pa.string())])
MADE = pa.schema([("word", pa.string()), ("twice", pa.int64())])
PARTS = ((0, 5), (5, 5), (5, 12))  # the second has no rows


def read(part: tuple[int, int]) -> Iterator[Read]:
    numbers = list(range(*part))
    rows = pa.record_batch([numbers, [f"w{n}" for n in numbers]], schema=GIVEN)
    aside = [{"key": "{}", "column": "word", "text": f"t{part[0]}", "commit_lsn": None, "tx_ordinal": None}]
    yield Read(rows, pa.RecordBatch.from_pylist(aside, schema=REJECTED_FIELDS))


def doubled(frame: DataFrame) -> DataFrame:
    return frame.select(sf.upper("word").alias("word"), (sf.col("n") * 2).alias("twice"))


def same(rejected: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    del rows
    return rejected


def with_first_word(rejected: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    word = rows["word"][0].as_py() if rows.num_rows else ""
    return rejected.set_column(0, rejected.schema.field("key"), pa.repeat(word, rejected.num_rows))


def shouted(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "word", pc.binary_join_element_wise(batch["word"], "!", ""))


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([batch["n"].cast(pa.string()), batch["n"]], schema=MADE)


@pytest.fixture
def rows(spark: SparkSession) -> FrameRows:
    return TaskRows(spark, [(part,) for part in PARTS], read, GIVEN, "a test").through(doubled, MADE, same)


EXPECTED = [{"word": f"W{n}", "twice": 2 * n} for n in range(12)]


def test_each_way_out_gives_the_same(rows: FrameRows) -> None:
    assert rows.arrow_schema == MADE
    assert [row for batch in rows.batches() for row in batch.to_pylist()] == EXPECTED
    assert rows.dataframe().toArrow().to_pylist() == EXPECTED
    # A part without rows is written too: it may be all there is.
    written = rows.in_tasks(lambda batches: [row for batch in batches for row in batch.to_pylist()])
    assert [[row["twice"] for row in part] for part in written] == [[0, 2, 4, 6, 8], [], [10, 12, 14, 16, 18, 20, 22]]


def test_what_follows_is_done_to_the_result(rows: FrameRows) -> None:
    loud = rows.mapped(shouted, MADE, same)
    expected = [{**row, "word": f"{row['word']}!"} for row in EXPECTED]
    assert [row for batch in loud.batches() for row in batch.to_pylist()] == expected
    assert loud.dataframe().toArrow().to_pylist() == expected
    total = pa.schema([("rows", pa.int64())])
    count = loud.together(lambda table: pa.table({"rows": [table.num_rows]}), total)
    assert count.arrow_schema == total
    assert count.in_tasks(lambda batches: [batch.to_pylist() for batch in batches]) == [[[{"rows": 12}]]]
    again = loud.through(lambda frame: frame.drop("twice"), pa.schema([MADE.field("word")]), same)
    assert [row for batch in again.batches() for row in batch.to_pylist()] == [{"word": r["word"]} for r in expected]


def test_values_set_aside_come_along(rows: FrameRows) -> None:
    list(rows.batches())
    aside = rows.mapped(shouted, MADE, lambda rejected, _: rejected.slice(0, 0)).rejected()
    assert aside is not None
    assert sum(batch.num_rows for batch in aside.batches()) == 0
    found = rows.rejected()
    assert found is not None
    assert [row["text"] for batch in found.batches() for row in batch.to_pylist()] == ["t0", "t5", "t5"]


def test_values_set_aside_are_judged_with_the_rows_as_they_were_read(spark: SparkSession) -> None:
    def first_words(rows: TaskRows | FrameRows | LocalRows) -> list[str]:
        found = rows.mapped(shouted, MADE, with_first_word).rejected()
        assert found is not None
        return [row["key"] for batch in found.batches() for row in batch.to_pylist()]

    task = TaskRows(spark, [(part,) for part in PARTS], read, GIVEN, "a test")
    assert first_words(task.mapped(numbered, MADE, same)) == ["w0", "", "w5"]
    assert first_words(task.through(doubled, MADE, same)) == ["w0", "", "w5"]
    # Read at once, the rows are one batch.
    here = read_here(spark, PARTS, read, GIVEN)
    assert first_words(here.mapped(numbered, MADE, same)) == ["w0"] * 3


def test_an_error_of_a_writer_comes_out_as_itself(rows: FrameRows) -> None:
    def fail(_: Iterator[pa.RecordBatch]) -> None:
        raise DestinationRejected("the writer does not like it")

    with pytest.raises(DestinationRejected, match="does not like it"):
        rows.in_tasks(fail)
