"""Rows and batches whose reading fails half-way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from ...destinations.batch import Changes, EventBatch, TableBatch
from ...events import Event
from ..local_rows import LocalRows

__all__ = ["BrokenRows", "Unreadable", "broken"]

_Result = TypeVar("_Result")


class Unreadable(Exception):
    """What reading fails with: not an error of the destination."""


@dataclass(frozen=True, slots=True, eq=False)
class BrokenRows(LocalRows):
    """Rows whose reading fails after the first part."""

    def dataframe(self) -> Any:
        raise Unreadable

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], _Result]) -> list[_Result]:
        write(self.batches())
        raise Unreadable

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield next(iter(self.table.to_batches()))
        raise Unreadable

    def together(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> BrokenRows:
        return BrokenRows(function(self.table))


def broken(batch: EventBatch) -> EventBatch:
    """The batch with a last step, and a last event, that cannot be read."""

    def broken_events() -> Iterator[Event]:
        yield from list(batch.events())[:-1]
        raise Unreadable

    def broken_part(part: TableBatch) -> TableBatch:
        last = part.steps[-1]
        assert isinstance(last, Changes)
        assert isinstance(last.rows, LocalRows)
        return replace(part, steps=(*part.steps[:-1], Changes(last.schema, BrokenRows(last.rows.table))))

    return EventBatch(batch.end, tuple(map(broken_part, batch.tables)), broken_events)
