"""The DuckDB destination keeps the promises of the contract, as a second connection reads the file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow.compute as pc
import pytest

from duckdb_reading import DuckDBFile, canonical_rows, duckdb_settings, interrupted_commit, motherduck_in
from headrace.config.duckdb import DuckDBConfig
from headrace.config.table_mode import TableMode
from headrace.destinations.duckdb import DuckDBDestination
from headrace.schema import TableName
from headrace.testing.destination_suite import DestinationSuite, Moment, Values
from headrace.testing.gaps import Gap, GapKind

_TOKEN = "anything"


class TestDuckDBDestination(DestinationSuite):
    title = "DuckDB"
    gaps = {  # noqa: RUF012
        "test_columns_whose_names_differ_in_case_only": Gap(
            GapKind.ENGINE_CANNOT, "to DuckDB such names are one: the second column has its attnum behind its name"
        )
    }

    @pytest.fixture
    def destination(self, tmp_path: Path, request: pytest.FixtureRequest) -> DuckDBDestination:
        self.root = tmp_path
        # Two runs meet only where each lets go of the file between its transactions.
        self.release = "claim" in getattr(request.function, "needs", ())
        self.reader = DuckDBFile(tmp_path / "shop.duckdb")
        return self.in_mode(None, TableMode.MIRROR)

    def read(self, destination: DuckDBDestination, table: TableName) -> Sequence[Values]:
        return canonical_rows(self.reader.table((table.schema, table.name)))

    def quarantined(self, destination: DuckDBDestination, table: TableName) -> Sequence[Values]:
        found = self.reader.table(("headrace", "quarantine_1"))
        return found.filter(pc.equal(found["table_name"], str(table))).drop(["table_id", "table_name"]).to_pylist()

    def in_mode(self, destination: DuckDBDestination | None, mode: TableMode) -> DuckDBDestination:
        return DuckDBDestination(duckdb_settings(self.root / "shop.duckdb", mode=mode.value, release=self.release))

    def reopened(self, destination: DuckDBDestination) -> DuckDBDestination:
        return self.in_mode(destination, TableMode.MIRROR)

    def interrupted(self, destination: DuckDBDestination, moment: Moment) -> AbstractContextManager[None]:
        return interrupted_commit(moment)


class TestMotherDuckDestination(TestDuckDBDestination):
    """Against files behind the same interface: see `motherduck_in`."""

    title = "MotherDuck"

    @pytest.fixture
    def destination(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DuckDBDestination:
        motherduck_in(tmp_path, _TOKEN, monkeypatch)
        self.reader = DuckDBFile(tmp_path / "shop.duckdb")
        return self.in_mode(None, TableMode.MIRROR)

    def in_mode(self, destination: DuckDBDestination | None, mode: TableMode) -> DuckDBDestination:
        settings = {"database": "md:shop", "token": _TOKEN, "mode": mode.value, "engine": {"memory_limit": "500MB"}}
        return DuckDBDestination(DuckDBConfig.model_validate(settings))
