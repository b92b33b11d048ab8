"""The change log in Parquet files keeps the promises of the contract: replayed, it gives the rows there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from headrace.config.parquet import ParquetConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.parquet import ParquetDestination, open_log
from headrace.pipeline.replaying import Replay
from headrace.schema import TableName
from headrace.stores import MemoryStore
from headrace.testing.canonical import canonical_column
from headrace.testing.destination_suite import DestinationSuite, Moment, Values
from headrace.testing.gaps import Gap, GapKind

A_LOG = Gap(GapKind.ENGINE_CANNOT, "it is a log of every change, with no other form")


class Interruption(Exception):
    """What a commit fails with."""


def replayed(location: Path) -> MemoryDestination:
    rows = MemoryDestination()
    store = MemoryStore()
    Replay(open_log(str(location)), rows, DestinationContext(1, store, None), store).run()
    return rows


class TestParquetDestination(DestinationSuite):
    title = "Parquet"
    gaps: ClassVar = {"in_mode": A_LOG}

    @pytest.fixture
    def destination(self, tmp_path: Path) -> ParquetDestination:
        self.location = tmp_path / "log"
        return self.opened()

    def opened(self) -> ParquetDestination:
        return ParquetDestination(ParquetConfig(location=str(self.location)))

    def read(self, destination: ParquetDestination, table: TableName) -> Sequence[Values]:
        rows = replayed(self.location).rows(table)
        columns = [canonical_column(column) for column in rows.columns]
        return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]

    def quarantined(self, destination: ParquetDestination, table: TableName) -> Sequence[Values]:
        return replayed(self.location).quarantine(table).to_pylist()

    def reopened(self, destination: ParquetDestination) -> ParquetDestination:
        return self.opened()

    @contextmanager
    def interrupted(self, destination: ParquetDestination, moment: Moment) -> Iterator[None]:
        commit = destination._commit
        failing = [moment]

        def fail(path: str, content: bytes) -> None:
            if not failing:
                commit(path, content)
                return
            if failing.pop() is Moment.AFTER_COMMIT:
                commit(path, content)
            raise Interruption

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(destination, "_commit", fail)
            yield
        assert not failing, "nothing was committed"
