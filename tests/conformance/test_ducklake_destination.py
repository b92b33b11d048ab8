"""The DuckLake destination keeps the promises of the contract, as a second connection reads the lake."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow.compute as pc
import pytest

from duckdb_reading import LakeReader, canonical_rows, interrupted_commit, lake_settings
from headrace.config.table_mode import TableMode
from headrace.destinations.duckdb import DuckDBDestination
from headrace.schema import TableName
from headrace.testing.destination_suite import DestinationSuite, Moment, Values
from headrace.testing.gaps import Gap, GapKind


class TestDuckLakeDestination(DestinationSuite):
    title = "DuckLake"
    gaps = {  # noqa: RUF012
        "test_columns_whose_names_differ_in_case_only": Gap(
            GapKind.ENGINE_CANNOT, "to DuckDB such names are one: the second column has its attnum behind its name"
        )
    }

    @pytest.fixture
    def destination(self, tmp_path: Path) -> DuckDBDestination:
        self.root = tmp_path
        self.reader = LakeReader(f"sqlite:{tmp_path}/lake.sqlite")
        return self.in_mode(None, TableMode.MIRROR)

    def read(self, destination: DuckDBDestination, table: TableName) -> Sequence[Values]:
        return canonical_rows(self.reader.table((table.schema, table.name)))

    def quarantined(self, destination: DuckDBDestination, table: TableName) -> Sequence[Values]:
        found = self.reader.table(("headrace", "quarantine_1"))
        return found.filter(pc.equal(found["table_name"], str(table))).drop(["table_id", "table_name"]).to_pylist()

    def in_mode(self, destination: DuckDBDestination | None, mode: TableMode) -> DuckDBDestination:
        return DuckDBDestination(lake_settings(self.root, mode=mode.value))

    def reopened(self, destination: DuckDBDestination) -> DuckDBDestination:
        return self.in_mode(destination, TableMode.MIRROR)

    def interrupted(self, destination: DuckDBDestination, moment: Moment) -> AbstractContextManager[None]:
        return interrupted_commit(moment)
