"""The built-in destinations that can be read back keep the promises of the contract; so do the wrappers around one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.destinations.contract import Destination
from headrace.destinations.instrumented import Instrumented
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.retrying import Retrying
from headrace.destinations.translated import Translated
from headrace.schema import TableName
from headrace.testing.canonical import canonical_column
from headrace.testing.destination_suite import DestinationSuite, Moment, Values
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.gaps import Gap, GapKind

NO_MODES = Gap(GapKind.NOT_BUILT, "it keeps the current rows and, beside them, every change")
TYPED_TEXT = Gap(GapKind.NOT_BUILT, "rows are kept as texts of their types; the table is copied again")
DURABLE_GAPS = {
    "in_mode": NO_MODES,
    "test_integers_become_wider": TYPED_TEXT,
    "test_integers_become_bigint": TYPED_TEXT,
    "test_floats_become_double": TYPED_TEXT,
    "test_decimals_take_more_digits": TYPED_TEXT,
    "test_texts_become_longer": TYPED_TEXT,
}


class Interruption(Exception):
    """What a commit fails with."""


class TestMemoryDestination(DestinationSuite):
    title = "Memory"
    gaps: ClassVar = {
        "in_mode": NO_MODES,
        "claim": Gap(GapKind.ENGINE_CANNOT, "runs that share the object look the same to it"),
    }

    @pytest.fixture
    def destination(self) -> MemoryDestination:
        return MemoryDestination()

    def read(self, destination: MemoryDestination, table: TableName) -> Sequence[Values]:
        rows = destination.rows(table)
        columns = [canonical_column(column) for column in rows.columns]
        return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]

    def quarantined(self, destination: MemoryDestination, table: TableName) -> Sequence[Values]:
        return destination.quarantine(table).to_pylist()

    def reopened(self, destination: MemoryDestination) -> MemoryDestination:
        """What it holds outlives a pipeline, and ends with it: it is its own place."""
        return destination

    @contextmanager
    def interrupted(self, destination: MemoryDestination, moment: Moment) -> Iterator[None]:
        def failing(write: Callable[..., Any]) -> Callable[..., Any]:
            def fail(*given: Any) -> Any:
                if moment is Moment.AFTER_COMMIT:
                    write(*given)
                raise Interruption

            return fail

        with pytest.MonkeyPatch.context() as patch:
            for method in ("write_table_rows", "write_events"):
                patch.setattr(destination, method, failing(getattr(destination, method)))
            yield


class Seams:
    """Where the SQLite file's transactions are interrupted."""

    def __init__(self) -> None:
        self.failing: Moment | None = None

    def opened(self, path: Path) -> DurableDestination:
        return DurableDestination(
            path, lambda *_: self._reach(Moment.BEFORE_COMMIT), lambda *_: self._reach(Moment.AFTER_COMMIT)
        )

    def _reach(self, moment: Moment) -> None:
        if self.failing is moment:
            self.failing = None
            raise Interruption


class TestDurableDestination(DestinationSuite):
    gaps = DURABLE_GAPS

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Destination:
        self.seams, self.path = Seams(), tmp_path / "destination.db"
        return self.opened()

    def opened(self) -> Destination:
        self.inner = self.seams.opened(self.path)
        return self.inner

    def read(self, destination: Destination, table: TableName) -> Sequence[Values]:
        return self.inner.rows(table)

    def quarantined(self, destination: Destination, table: TableName) -> Sequence[Values]:
        return self.inner.quarantine(table)

    def reopened(self, destination: Destination) -> Destination:
        return self.opened()

    @contextmanager
    def interrupted(self, destination: Destination, moment: Moment) -> Iterator[None]:
        self.seams.failing = moment
        yield
        assert self.seams.failing is None, "nothing was committed"


class TestWrappedDestination(TestDurableDestination):
    def opened(self) -> Destination:
        return Instrumented(Retrying(Translated(super().opened())), lambda call: None)
