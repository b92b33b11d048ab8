"""Maintenance of an Iceberg table on S3, whose files have other locations than a disk's."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.fs as pa_fs
import pytest

from headrace.config.iceberg import IcebergConfig, MaintenanceConfig
from headrace.destinations.iceberg.catalog import Catalog
from headrace.destinations.iceberg.java import Java
from headrace.destinations.iceberg.maintenance.compaction import Compaction
from headrace.destinations.iceberg.maintenance.expiry import expire_snapshots
from headrace.destinations.iceberg.maintenance.orphans import remove_orphans
from headrace.destinations.lake.places import file_io
from headrace.testing.s3 import S3Server
from iceberg_stream import StreamedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = MaintenanceConfig(small_files=4, snapshots_kept=1, retention_s=0)


@pytest.mark.parametrize("scheme", ["s3", pytest.param("s3a", marks=pytest.mark.long)])
def test_maintenance_on_s3(scheme: str, spark: SparkSession, tmp_path: Path) -> None:
    with S3Server() as s3:
        settings = IcebergConfig.model_validate(
            {
                "warehouse": f"{scheme}://{s3.bucket}/warehouse",
                "catalog": {"uri": str(tmp_path / "catalog.db"), "properties": s3.iceberg_properties},
            }
        )
        table = StreamedTable(Catalog(Java(spark), settings), tmp_path)
        for n in range(5):
            table.change([(n * 3 + place, n, "x") for place in range(3)], deletes=[n * 3 - 1])
        compaction = Compaction.of(table.catalog, table, _SETTINGS)
        assert compaction is not None
        assert compaction.run(lambda: None) == 1
        assert expire_snapshots(table.catalog, table, _SETTINGS, int(time.time() * 1000)) == 5
        # Given what a killed run left
        io = file_io(table.open_table.layout)
        with io.new_output(
            f"{table.open_table.layout.data_location}/headrace-7-e1xaaaaaaaaaaaa-left.parquet"
        ).create() as sink:
            sink.write(b"x")
        table.restarted()
        assert remove_orphans(table.catalog, table, _SETTINGS, dt.datetime.now(dt.UTC)) == 1
        # Then only files in use are left
        table.open_table.refresh()
        live = {file.path.partition("://")[2] for file in table.open_table.files().live.values()}
        files = io.fs_by_scheme(scheme, s3.bucket)  # type: ignore[attr-defined]
        found = files.get_file_info(pa_fs.FileSelector(f"{s3.bucket}/warehouse/public/t/data", recursive=True))
        assert {info.path for info in found if info.is_file} == live
        table.change([(3, 9, "after")], deletes=[4])
        live_rows = sum(file.live_records for file in table.open_table.files().live.values())
        assert live_rows == len(table.rows)
