"""A table without a catalog: its live files, and its rows read by pyarrow and pyiceberg's Puffin reader."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from headrace.destinations.lake.data_files import write_data
from headrace.destinations.lake.files import LiveFile, TableLayout, Written
from headrace.destinations.lake.operations import live_file

__all__ = ["LocalTable", "local_layout", "schema_json"]

UNPARTITIONED = '{"spec-id": 0, "fields": []}'


def schema_json(arrow: pa.Schema) -> str:
    schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(arrow, format_version=3))
    return schema.model_dump_json()


def local_layout(directory: Path, arrow: pa.Schema, **more: Any) -> TableLayout:
    fields = {"spec_json": UNPARTITIONED, "io_properties": {}, **more}
    return TableLayout("public.t", f"file:{directory}", "headrace-1-", schema_json(arrow), **fields)


class LocalTable:
    """The live files of a table, as the driver knows them."""

    def __init__(self, layout: TableLayout) -> None:
        self.layout = layout
        self.live: dict[str, LiveFile] = {}

    @property
    def files(self) -> tuple[LiveFile, ...]:
        return tuple(self.live.values())

    def append(self, rows: pa.Table) -> Written:
        written = write_data(self.layout, iter(rows.to_batches()))
        self.apply(written)
        return written

    def apply(self, written: Written) -> None:
        """Commit, checking that what is replaced was there."""
        for vector in written.replaced:
            assert self.live[vector.referenced].vector == vector
            self.live[vector.referenced] = replace(self.live[vector.referenced], vector=None)
        for path in written.emptied:
            assert self.live.pop(path).vector is None
        for vector in written.vectors:
            assert self.live[vector.referenced].vector is None
            self.live[vector.referenced] = replace(self.live[vector.referenced], vector=vector)
        assert written.rows == sum(file.records for file in written.data)
        for file in written.data:
            entry = json.loads(file.json)
            self.live[file.path] = live_file(entry, entry["lower-bounds"]["keys"])

    def rows(self) -> list[dict[str, Any]]:
        return [row for file in self.files for row in _live_rows(file)]

    def paths(self) -> set[str]:
        """Every file there is."""
        directory = Path(self.layout.data_location.removeprefix("file:"))
        return {f"file:{path}" for path in directory.rglob("*") if path.is_file()}


def _live_rows(file: LiveFile) -> Iterable[dict[str, Any]]:
    rows = pq.read_table(file.path.removeprefix("file:"), partitioning=None).to_pylist()
    assert len(rows) == file.records
    deleted = _deleted(file)
    return [row for position, row in enumerate(rows) if position not in deleted]


def _deleted(file: LiveFile) -> set[int]:
    if file.vector is None:
        return set()
    puffin = PuffinFile(Path(file.vector.path.removeprefix("file:")).read_bytes())
    vectors = {one.referenced_data_file: one for one in deletion_vectors_from_puffin_file(puffin)}
    positions: Sequence[int] = vectors[file.path].to_vector().to_pylist()
    assert len(positions) == file.vector.records
    return set(positions)
