"""Data files whose bytes changed: what is read is right, or an error names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damaging import damaged
from headrace.destinations.lake import reading
from headrace.destinations.lake.files import LiveFile
from headrace.destinations.lake.reading import read_rows
from headrace.errors import DestinationError, RetryPolicy
from lake_files import LocalTable, local_layout

ROWS = 500
NAMES = ["id", "amount", "note"]
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 10))]


def written_table(directory: Path) -> tuple[LocalTable, LiveFile, pa.Table]:
    notes = [f"paid {number * 37 % 1000} EUR" for number in range(ROWS)]
    rows = pa.table([pa.array(range(ROWS), pa.int64()), pa.array(np.arange(ROWS) / 4), pa.array(notes)], names=NAMES)
    table = LocalTable(local_layout(directory, rows.schema))
    table.append(rows)
    (file,) = table.files
    return table, file, rows


def end_of_pages(path: Path) -> int:
    """Return where the pages end; the page index and the footer follow, for which Parquet has no checksum."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return max((one.dictionary_page_offset or one.data_page_offset) + one.total_compressed_size for one in columns)


def read_damaged(table: LocalTable, file: LiveFile, rows: pa.Table) -> DestinationError | None:
    """Return the error of reading all rows; None if they are right."""
    # Footers that were read before the damage are not kept.
    reading._footers.keep_only(table.layout.data_location, set())
    try:
        found = read_rows(table.layout, file, np.arange(ROWS), NAMES)
    except DestinationError as error:
        return error
    assert found.equals(rows), "other rows were read"
    return None


@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bits_in_pages_and_lost_ends_are_errors(tmp_path: Path, seed: int) -> None:
    table, file, rows = written_table(tmp_path)
    path = Path(file.path.removeprefix("file:"))
    content, end = path.read_bytes(), end_of_pages(path)
    flipped = [pages + content[end:] for _, pages in damaged(content[:end], seed, 300, 0) if len(pages) == end]
    cut = [changed for _, changed in damaged(content, seed, 0, 20)]
    errors = []
    for changed in flipped + cut:
        path.write_bytes(changed)
        errors.append(read_damaged(table, file, rows))
    found = [error for error in errors if error is not None]
    # Some bits of a page's header have no effect on what is read.
    assert len(found) > 0.8 * len(flipped + cut)
    assert all(error is not None for error in errors[len(flipped) :])
    assert {str(error) for error in found} == {f"the data file {file.path} is damaged"}
    assert {error.retry for error in found} == {RetryPolicy.MANUAL}
    assert all("headrace resync PIPELINE.YAML TABLE" in error.hint for error in found)
