"""Row lineage: each row keeps its identity, and the number of the commit that last changed it, in whatever file it is.

Iceberg gives the rows of a new file consecutive ids, from the file's first row id on, and the sequence number of the
file; a file of rows that were elsewhere before has both as columns. By its id a row is found again after it was moved,
however the rows were sorted and split: that is how compaction knows where a row that was deleted meanwhile lies now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...lake.columns import column_plan
from ...lake.deletion_vectors import Positions, read_positions
from ...lake.files import LiveFile, TableLayout
from ...lake.places import file_io
from ...lake.reading import OpenedFile, read_rows

__all__ = ["LineageLayout", "Source", "live_rows", "moved_positions", "row_ids"]

# Reserved by the specification.
_ROW_ID_FIELD = 2147483540
_SEQUENCE_FIELD = 2147483539


@dataclass(frozen=True, slots=True)
class LineageLayout:
    """A table's layout in which the two columns of lineage are columns like the others."""

    layout: TableLayout
    row_id: str
    sequence: str

    @classmethod
    def of(cls, layout: TableLayout) -> LineageLayout:
        schema = json.loads(layout.schema_json)
        names = {field["name"] for field in schema["fields"]}
        row_id, sequence = _free("_row_id", names), _free("_last_updated_sequence_number", names)
        for number, name in ((_ROW_ID_FIELD, row_id), (_SEQUENCE_FIELD, sequence)):
            schema["fields"].append({"id": number, "name": name, "required": False, "type": "long"})
        return cls(replace(layout, schema_json=json.dumps(schema)), row_id, sequence)


@dataclass(frozen=True, slots=True)
class Source:
    """A file to be written anew, as of the snapshot that was read."""

    file: LiveFile
    first_row_id: int
    sequence: int


def live_rows(lineage: LineageLayout, sources: Iterable[Source], going: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """The rows that are not deleted, with their lineage, a row group at a time. `going` raises to end it."""
    names = column_plan(lineage.layout.schema_json).arrow.names
    for source in sources:
        deleted = read_positions(file_io(lineage.layout), source.file)
        with closing(OpenedFile(lineage.layout, source.file)) as opened:
            start = 0
            for group in range(opened.metadata.num_row_groups):
                going()
                rows = pa.Table.from_arrays(opened.read(names, [group]), names=names)
                positions = np.arange(start, start + rows.num_rows)
                start += rows.num_rows
                rows = _with_lineage(lineage, source, rows, positions)
                yield from rows.filter(pa.array(~np.isin(positions, deleted))).to_batches()


def row_ids(lineage: LineageLayout, source: Source, positions: Positions) -> Positions:
    """The ids of rows of a file."""
    counted = source.first_row_id + positions
    with closing(OpenedFile(lineage.layout, source.file)) as opened:
        if not len(positions) or opened.column(lineage.row_id) is None:
            return counted
    stored = read_rows(lineage.layout, source.file, positions, [lineage.row_id]).column(0)
    return np.asarray(pc.coalesce(stored, pa.array(counted)).to_numpy(), dtype=np.int64)


def moved_positions(gone: Positions, files: Sequence[Positions]) -> list[Positions] | None:
    """Where rows lie in new files, of which each is given by the ids of its rows.

    None unless each id is there exactly once: what is not certain must not be committed.
    """
    found = [np.flatnonzero(np.isin(ids, gone)) for ids in files]
    if sum(len(positions) for positions in found) != len(np.unique(gone)):
        return None
    # As many as there are ids may still be one twice and another not at all.
    ids = np.concatenate([file[positions] for file, positions in zip(files, found, strict=True)] or [gone[:0]])
    return found if len(np.unique(ids)) == len(ids) else None


def _with_lineage(lineage: LineageLayout, source: Source, rows: pa.Table, positions: Positions) -> pa.Table:
    lasting = {
        lineage.row_id: pa.array(source.first_row_id + positions),
        lineage.sequence: pa.scalar(source.sequence, pa.int64()),
    }
    for name, value in lasting.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, pc.coalesce(rows.column(place), value))
    return rows


def _free(name: str, taken: set[str]) -> str:
    # Readers go by field id; a column of the source may have the name.
    while name in taken:
        name = f"_{name}"
    return name
