"""What passes between the driver, which commits, and the tasks, which write files: frozen values, all picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["DataFile", "DeletionVector", "LiveFile", "TableLayout", "VectorForm", "Written"]


class VectorForm(StrEnum):
    """How deletion vectors are put into files: each in a Puffin file of its own, or all in one of Delta's."""

    PUFFIN = "puffin"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """All that a task must know of a table to write files for it."""

    name: str
    """As namespace.table, for errors."""
    data_location: str
    """The URI under which data files and deletion vectors are put."""
    file_prefix: str
    """Begins every file's name: it tells the pipeline and its run, so that what a crash left can be recognised."""
    schema_json: str
    """The table's schema, as Iceberg writes it; `pyiceberg.schema.Schema.model_validate_json` reads it."""
    spec_json: str
    """The table's current partition spec, as Iceberg writes it."""
    io_properties: Mapping[str, str] = field(repr=False)
    """How to reach the files (`s3.endpoint`, …), secrets among them."""
    sort_by: tuple[tuple[str, bool], ...] = ()
    """Columns by which the rows of a file are sorted, and whether descending."""
    sort_order_id: int = 0
    target_file_bytes: int = 128 << 20
    vectors: VectorForm = VectorForm.PUFFIN


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that a task wrote, described as Iceberg's ContentFileParser reads it."""

    path: str
    size: int
    records: int
    json: str


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Which rows of one data file are deleted: a blob in a file of one `VectorForm`."""

    referenced: str
    """The data file."""
    path: str
    offset: int
    length: int
    records: int
    """How many rows are deleted."""
    json: str
    """As the commit takes it: Iceberg's ContentFileParser, or Delta's log."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the table's current snapshot, with what is needed to find rows in it."""

    path: str
    size: int
    records: int
    spec_id: int
    partition_json: str
    """The file's partition values, as ContentFileParser has them under "partition"."""
    bounds: Mapping[int, tuple[bytes, bytes]]
    """Lower and upper bound by field id, of the identity's columns only, in Iceberg's single-value form."""
    vector: DeletionVector | None = None

    @property
    def live_records(self) -> int:
        return self.records - (0 if self.vector is None else self.vector.records)


@dataclass(frozen=True, slots=True)
class Written:
    """What one task made of its rows: files to add, vectors to add, and the vectors that those replace."""

    data: tuple[DataFile, ...] = ()
    vectors: tuple[DeletionVector, ...] = ()
    replaced: tuple[DeletionVector, ...] = ()
    emptied: tuple[str, ...] = ()
    """Data files of which every row is deleted now: they leave the table instead of getting a vector."""
    rows: int = 0
    """Rows in `data`."""
    lost: int = 0
    """JSON texts that are NULL in `data`, because no variant can hold them."""
