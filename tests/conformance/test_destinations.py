"""The built-in destinations that can be read back keep the promises of the contract; so do the wrappers around one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.destinations.contract import Destination
from headrace.destinations.instrumented import Instrumented
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.retrying import Retrying
from headrace.destinations.translated import Translated
from headrace.schema import TableName
from headrace.testing.canonical import canonical_column
from headrace.testing.destination_suite import DestinationSuite, Values
from headrace.testing.durable_destination import DurableDestination


class TestMemoryDestination(DestinationSuite):
    @pytest.fixture
    def destination(self) -> MemoryDestination:
        return MemoryDestination()

    def read(self, destination: MemoryDestination, table: TableName) -> Sequence[Values]:
        rows = destination.rows(table)
        columns = [canonical_column(column) for column in rows.columns]
        return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]

    def quarantined(self, destination: MemoryDestination, table: TableName) -> Sequence[Values]:
        return destination.quarantine(table).to_pylist()


class TestDurableDestination(DestinationSuite):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> DurableDestination:
        return DurableDestination(tmp_path / "destination.db")

    def read(self, destination: DurableDestination, table: TableName) -> Sequence[Values]:
        return destination.rows(table)

    def quarantined(self, destination: DurableDestination, table: TableName) -> Sequence[Values]:
        return destination.quarantine(table)


class TestWrappedDestination(DestinationSuite):
    @pytest.fixture
    def inner(self, tmp_path: Path) -> DurableDestination:
        return DurableDestination(tmp_path / "destination.db")

    @pytest.fixture
    def destination(self, inner: DurableDestination) -> Destination:
        self.inner = inner
        return Instrumented(Retrying(Translated(inner)), lambda call: None)

    def read(self, destination: Destination, table: TableName) -> Sequence[Values]:
        return self.inner.rows(table)
