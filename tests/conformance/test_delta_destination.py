"""The Delta destination keeps the promises of the contract, as DuckDB reads its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.compute as pc
import pytest

from delta_tables import delta_settings, read_delta, table_directory
from headrace.config.table_mode import TableMode
from headrace.destinations.delta import DeltaDestination
from headrace.destinations.delta.table import DeltaTable
from headrace.destinations.lake.java_errors import CommitStateUnknown
from headrace.errors import DestinationError
from headrace.schema import TableName
from headrace.testing.destination_suite import DestinationSuite, Moment, Values
from headrace.testing.gaps import Gap, GapKind
from lakehouse import canonical_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestDeltaDestination(DestinationSuite):
    title = "Delta"
    gaps: ClassVar = {
        "test_columns_whose_names_differ_in_case_only": Gap(
            GapKind.ENGINE_CANNOT, "to Delta `a` and `A` are one column; the table stops, and says so"
        ),
    }

    @pytest.fixture
    def spark(self, spark: SparkSession) -> SparkSession:
        return spark

    @pytest.fixture
    def destination(self, tmp_path: Path) -> DeltaDestination:
        self.warehouse = tmp_path / "warehouse"
        return DeltaDestination(delta_settings(self.warehouse))

    def read(self, destination: DeltaDestination, table: TableName) -> Sequence[Values]:
        return canonical_rows(read_delta(self.warehouse, table.schema, table.name))

    def quarantined(self, destination: DeltaDestination, table: TableName) -> Sequence[Values]:
        if not table_directory(self.warehouse, "headrace", "quarantine_1").exists():
            return []
        found = read_delta(self.warehouse, "headrace", "quarantine_1")
        return found.filter(pc.equal(found["table_name"], str(table))).drop(["table_id", "table_name"]).to_pylist()

    def in_mode(self, destination: DeltaDestination, mode: TableMode) -> DeltaDestination:
        return DeltaDestination(delta_settings(self.warehouse, mode=mode.value))

    def reopened(self, destination: DeltaDestination) -> DeltaDestination:
        return DeltaDestination(delta_settings(self.warehouse))

    @contextmanager
    def interrupted(self, destination: DeltaDestination, moment: Moment) -> Iterator[None]:
        commit = DeltaTable.commit

        def fail(table: DeltaTable, *given: Any) -> None:
            if moment is Moment.BEFORE_COMMIT:
                msg = "the storage does not answer"
                raise DestinationError(msg)
            commit(table, *given)
            msg = "the storage's answer was lost"
            raise CommitStateUnknown(msg)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeltaTable, "commit", fail)
            yield
