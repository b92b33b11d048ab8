"""The Iceberg destination keeps the promises of the contract, as pyiceberg reads its tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from headrace.destinations.iceberg import IcebergDestination
from headrace.schema import TableName
from headrace.testing.destination_suite import DestinationSuite, Values
from lakehouse import canonical_rows, iceberg_settings, lake, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestIcebergDestination(DestinationSuite):
    @pytest.fixture
    def spark(self, spark: SparkSession) -> SparkSession:
        return spark

    @pytest.fixture
    def destination(self, tmp_path: Path) -> IcebergDestination:
        self.warehouse = tmp_path / "warehouse"
        return IcebergDestination(iceberg_settings(self.warehouse))

    def read(self, destination: IcebergDestination, table: TableName) -> Sequence[Values]:
        return canonical_rows(read_table(self.warehouse, str(table)))

    def quarantined(self, destination: IcebergDestination, table: TableName) -> Sequence[Values]:
        if not lake(self.warehouse).table_exists("headrace.quarantine_1"):
            return []
        found = read_table(self.warehouse, "headrace.quarantine_1")
        return found.filter(pc.equal(found["table_name"], str(table))).drop(["table_id", "table_name"]).to_pylist()
