"""An Iceberg table that is written as the stream does it, batch by batch, with a plain model of its rows beside it."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from headrace.config.iceberg import IcebergConfig
from headrace.destinations.fold import folded_schema
from headrace.destinations.iceberg.catalog import Catalog
from headrace.destinations.iceberg.plan import TABLE_PROPERTIES
from headrace.destinations.iceberg.table import IcebergTable
from headrace.destinations.lake.contract import NewTable
from headrace.destinations.lake.data_files import write_data
from headrace.destinations.lake.fence import Fence
from headrace.destinations.lake.files import TableLayout
from headrace.destinations.lake.merge import Merge
from headrace.destinations.lake.operations import Operation
from headrace.destinations.lake.record import PIPELINE, Record
from headrace.lsn import Lsn

ROW = pa.struct([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int32()), pa.field("doc", pa.string())])
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "n", "required": False, "type": "int"},
        {"id": 3, "name": "doc", "required": False, "type": "string"},
    ],
}
UNPARTITIONED: dict[str, Any] = {"spec-id": 0, "fields": []}
BY_BUCKET: dict[str, Any] = {
    "spec-id": 0,
    "fields": [{"name": "b", "transform": "bucket[2]", "source-id": 1, "field-id": 1000}],
}
_FOLDED = folded_schema(ROW, ("id",))
_MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_PROPERTIES = {**TABLE_PROPERTIES, PIPELINE: "7"}


class StreamedTable:
    """Implements what maintenance asks of a table (`HeldTable`)."""

    copying = False

    def __init__(
        self, catalog: Catalog, warehouse: Path, spec: dict[str, Any] = UNPARTITIONED, sort_by: str | None = None
    ) -> None:
        self.catalog, self.warehouse = catalog, warehouse
        self.name = ("public", "t")
        self.lock = threading.RLock()
        self.rows: dict[int, tuple[int, int, str]] = {}
        self._commits = 0
        order: dict[str, Any] = {"order-id": 0, "fields": []}
        if sort_by is not None:
            number = {"id": 1, "n": 2, "doc": 3}[sort_by]
            how = {"transform": "identity", "source-id": number, "direction": "desc", "null-order": "nulls-last"}
            order = {"order-id": 1, "fields": [how]}
        java = catalog.create(NewTable(self.name, _SCHEMA, spec, order, _PROPERTIES))
        self.table: IcebergTable | None = self._wrapped(java, Fence(7, 1, "aaaaaaaaaaaa"), sort_by)

    def _wrapped(self, java: Any, fence: Fence, sort_by: str | None) -> IcebergTable:
        iceberg = self.catalog.java.iceberg
        layout = TableLayout(
            name="public.t",
            data_location=f"{java.location()}/data",
            file_prefix=fence.file_prefix,
            schema_json=iceberg.SchemaParser.toJson(java.schema()),
            spec_json=iceberg.PartitionSpecParser.toJson(java.spec()),
            io_properties={**self.catalog.io_properties, **dict(java.io().properties())},
            sort_by=((sort_by, True),) if sort_by else (),
        )
        return IcebergTable(self.catalog.java, java, layout, ("id",), fence)

    @property
    def open_table(self) -> IcebergTable:
        assert self.table is not None
        return self.table

    def restarted(self) -> None:
        """As another run of the pipeline opens it."""
        java = self.catalog.load(self.name)
        self.table = self._wrapped(java, Fence(7, 2, "bbbbbbbbbbbb"), None)

    def copied(self, count: int) -> None:
        """Rows 0 to count, as the initial copy writes them."""
        table, ids = self.open_table, list(range(count))
        docs = [f"document {key} of the table, as it was copied from the source" for key in ids]
        batch = pa.RecordBatch.from_pydict({"id": ids, "n": ids, "doc": docs}, schema=pa.schema(list(ROW)))
        with self.lock:
            written = write_data(table.layout, iter([batch]))
            table.commit(table.files(), [Operation(written)], Record(7))
        self.rows.update(zip(ids, zip(ids, ids, docs, strict=True), strict=True))

    def change(self, upserts: Iterable[tuple[int, int, str]] = (), deletes: Iterable[int] = ()) -> None:
        """One batch of the stream."""
        changed = {row[0]: row for row in upserts}
        # One change for each key, as folding leaves it.
        gone = [key for key in set(deletes) if key in self.rows and key not in changed]
        with self.lock:
            table = self.open_table
            table.refresh()
            planned = table.files()
            files = tuple(planned.live.values())
            written = Merge(table.layout, files, ("id",))(iter([_folded(list(changed.values()), gone)]))
            self._commits += 1
            table.commit(planned, [Operation(written)], Record(7, Lsn(self._commits)))
        self.rows.update(changed)
        for key in gone:
            del self.rows[key]

    def read(self) -> dict[int, tuple[int, int, str]]:
        """By pyiceberg, which knows nothing of us."""
        table = self.scan()
        columns = [table.column(name).to_pylist() for name in ("id", "n", "doc")]
        rows = list(zip(*columns, strict=True))
        assert len({row[0] for row in rows}) == len(rows), "a row is there twice"
        return {row[0]: row for row in rows}

    def scan(self, snapshot: int | None = None) -> pa.Table:
        return self.reader().scan(snapshot_id=snapshot).to_arrow()

    def reader(self) -> Any:
        """Load the table with pyiceberg, as it is now."""
        uri = f"sqlite:///{self.warehouse}/catalog.db"
        return load_catalog("headrace", type="sql", uri=uri).load_table("public.t")

    def metadata(self) -> str:
        """Where the table's current metadata is."""
        self.open_table.refresh()
        return str(self.open_table.java_table.operations().current().metadataFileLocation())

    def files(self) -> set[Path]:
        """Data files and vectors on disk."""
        return {path for path in (self.warehouse / "public/t/data").rglob("*") if path.is_file()}

    def live_files(self) -> set[Path]:
        """Those of the current snapshot."""
        self.open_table.refresh()
        live = self.open_table.files().live.values()
        paths = [file.path for file in live] + [file.vector.path for file in live if file.vector is not None]
        return {Path(path.removeprefix("file://")) for path in paths}


def streamed_catalog(java: Any, warehouse: Path) -> Catalog:
    return Catalog(java, IcebergConfig(warehouse=str(warehouse)))


def _folded(upserts: list[tuple[int, int, str]], deletes: list[int]) -> pa.RecordBatch:
    rows = [dict(zip(("id", "n", "doc"), row, strict=True)) for row in upserts]
    rows += [{"id": key, "n": None, "doc": None} for key in deletes]
    count = len(rows)
    columns = {
        "op": ["U"] * len(upserts) + ["D"] * len(deletes),
        "commit_lsn": [1] * count,
        "tx_ordinal": list(range(count)),
        "xid": [1] * count,
        "commit_time": [_MOMENT] * count,
        "count": [1] * count,
        "unchanged": [None] * count,
        "origin": [None] * count,
        "row": rows,
    }
    return pa.RecordBatch.from_pydict(columns, schema=_FOLDED)
