"""The Iceberg destination keeps the promises of the contract, as pyiceberg reads its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

from headrace.config.table_mode import TableMode
from headrace.destinations.iceberg import IcebergDestination
from headrace.destinations.iceberg.table import IcebergTable
from headrace.destinations.lake.java_errors import CommitStateUnknown
from headrace.errors import DestinationError
from headrace.schema import TableName
from headrace.testing.destination_suite import DestinationSuite, Moment, Values
from lakehouse import canonical_rows, iceberg_settings, lake, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestIcebergDestination(DestinationSuite):
    title = "Iceberg"

    @pytest.fixture
    def spark(self, spark: SparkSession) -> SparkSession:
        return spark

    @pytest.fixture
    def destination(self, tmp_path: Path) -> IcebergDestination:
        self.warehouse = tmp_path / "warehouse"
        return IcebergDestination(iceberg_settings(self.warehouse))

    def read(self, destination: IcebergDestination, table: TableName) -> Sequence[Values]:
        return canonical_rows(read_table(self.warehouse, (table.schema, table.name)))

    def quarantined(self, destination: IcebergDestination, table: TableName) -> Sequence[Values]:
        if not lake(self.warehouse).table_exists("headrace.quarantine_1"):
            return []
        found = read_table(self.warehouse, "headrace.quarantine_1")
        return found.filter(pc.equal(found["table_name"], str(table))).drop(["table_id", "table_name"]).to_pylist()

    def in_mode(self, destination: IcebergDestination, mode: TableMode) -> IcebergDestination:
        return IcebergDestination(iceberg_settings(self.warehouse, mode=mode.value))

    def reopened(self, destination: IcebergDestination) -> IcebergDestination:
        return IcebergDestination(iceberg_settings(self.warehouse))

    @contextmanager
    def interrupted(self, destination: IcebergDestination, moment: Moment) -> Iterator[None]:
        commit = IcebergTable.commit

        def fail(table: IcebergTable, *given: Any) -> None:
            if moment is Moment.BEFORE_COMMIT:
                msg = "the catalog does not answer"
                raise DestinationError(msg)
            commit(table, *given)
            msg = "the catalog's answer was lost"
            raise CommitStateUnknown(msg)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IcebergTable, "commit", fail)
            yield
