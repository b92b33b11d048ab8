"""deletion_vectors: what is written is read back, by us and by pyiceberg; damage is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from headrace.destinations.lake.deletion_vectors import (
    Positions,
    deleted_since,
    read_positions,
    read_vector,
    write_vectors,
)
from headrace.destinations.lake.files import LiveFile
from headrace.destinations.lake.places import file_io
from headrace.errors import DestinationError, RetryPolicy
from lake_files import local_layout

POSITIONS = hnp.arrays(np.int64, st.integers(1, 50), elements=st.integers(0, 1 << 34), unique=True)
LAYOUT_COLUMNS = pa.schema([pa.field("id", pa.int64())])


def live(name: str) -> LiveFile:
    return LiveFile(f"file:/warehouse/{name}.parquet", 100, 1 << 35, 3, '["a/é", null]', {})


def positions(*values: int) -> Positions:
    return np.array(values, dtype=np.int64)


@settings(max_examples=30, deadline=None)
@given(first=POSITIONS, second=POSITIONS, more=POSITIONS)
def test_round_trip_of_several_each_in_its_own_file(
    tmp_path_factory: pytest.TempPathFactory, first: np.ndarray, second: np.ndarray, more: np.ndarray
) -> None:
    layout = local_layout(tmp_path_factory.mktemp("vectors"), LAYOUT_COLUMNS)
    io = file_io(layout)
    a, b = write_vectors(layout, [(live("a"), first), (live("é"), second)])

    assert a.path != b.path
    assert read_positions(io, replace(live("a"), vector=a)).tolist() == sorted(first.tolist())
    assert set(read_vector(io, b)) == set(second.tolist())

    (merged,) = write_vectors(layout, [(replace(live("a"), vector=a), more)])
    assert set(read_vector(io, merged)) == {*first.tolist(), *more.tolist()}


def test_pyiceberg_reads_them(tmp_path: Path) -> None:
    layout = local_layout(tmp_path, LAYOUT_COLUMNS)
    deleted = np.concatenate((np.arange(5, 100_000), [200_000]))

    (vector,) = write_vectors(layout, [(live("é"), deleted)])

    puffin = PuffinFile(Path(vector.path.removeprefix("file:")).read_bytes())
    (read,) = deletion_vectors_from_puffin_file(puffin)
    assert read.referenced_data_file == "file:/warehouse/é.parquet"
    assert read.to_vector().to_pylist() == deleted.tolist()
    (blob,) = puffin.footer.blobs
    assert blob.type == "deletion-vector-v1"
    assert blob.properties["cardinality"] == str(len(deleted))


def test_description(tmp_path: Path) -> None:
    layout = local_layout(tmp_path, LAYOUT_COLUMNS)

    (vector,) = write_vectors(layout, [(live("a"), np.array([1, 2]))])

    entry = json.loads(vector.json)
    assert entry["partition"] == ["a/é", None]
    assert entry["spec-id"] == 3
    assert entry["record-count"] == vector.records == 2
    assert entry["referenced-data-file"] == vector.referenced == live("a").path
    assert (entry["content-offset"], entry["content-size-in-bytes"]) == (vector.offset, vector.length)
    assert entry["file-size-in-bytes"] == Path(vector.path.removeprefix("file:")).stat().st_size


def test_no_positions_no_file(tmp_path: Path) -> None:
    assert write_vectors(local_layout(tmp_path, LAYOUT_COLUMNS), []) == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("at", [0, 5, 20, -1])
def test_a_changed_byte_is_noticed(tmp_path: Path, at: int) -> None:
    layout = local_layout(tmp_path, LAYOUT_COLUMNS)
    (vector,) = write_vectors(layout, [(live("a"), np.array([1, 2]))])
    path = Path(vector.path.removeprefix("file:"))
    content = bytearray(path.read_bytes())
    content[vector.offset + (at % vector.length)] ^= 1
    path.write_bytes(content)

    with pytest.raises(DestinationError, match=r"deletion vector of .*a.parquet is damaged") as caught:
        read_vector(file_io(layout), vector)
    assert caught.value.retry is RetryPolicy.MANUAL
    assert "headrace resync PIPELINE.YAML TABLE" in caught.value.hint


def test_a_wrong_cardinality_is_noticed(tmp_path: Path) -> None:
    layout = local_layout(tmp_path, LAYOUT_COLUMNS)
    (vector,) = write_vectors(layout, [(live("a"), np.array([1, 2]))])

    with pytest.raises(DestinationError, match="2 rows where 3 are recorded"):
        read_vector(file_io(layout), replace(vector, records=3))


def test_deleted_since() -> None:
    assert deleted_since(positions(1, 4), positions(0, 1, 4, 9)).tolist() == [0, 9]  # type: ignore[union-attr]
    assert deleted_since(positions(), positions()).tolist() == []  # type: ignore[union-attr]
    assert deleted_since(positions(1, 4), positions(1, 9)) is None
