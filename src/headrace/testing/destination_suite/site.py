"""A started destination, and how the suite writes to it and reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ...destinations.contract import Destination, DestinationContext, Durability
from ...events import Event, Relation
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema
from ...stores.memory import MemoryStore
from ..canonical import canonical, canonical_text
from ..local_rows import Altered, Happening, LocalRows, batch_of, batch_per_table, local_rows, transaction

if TYPE_CHECKING:
    from .hooks import DestinationHooks, Moment

__all__ = ["Site", "Values", "comparable"]

Values = Mapping[str, Any]
"""A row by column name: Python values, or what `canonical` makes of them."""


def comparable(rows: Sequence[Values]) -> list[str]:
    """Rows as texts: comparable whatever the values are, and in whatever order they came."""
    return sorted(canonical_text(canonical(row)) for row in rows)


class Site:
    """What a test acts on. It stands for the pipeline: it calls as a pipeline does."""

    def __init__(
        self,
        suite: DestinationHooks,
        destination: Destination,
        spark: Any,
        tables: Sequence[ReplicatedTableSchema] = (),
        context: DestinationContext | None = None,
    ) -> None:
        """`context` is for the start of the suite's test that looks at what it says; else it is a plain one."""
        self.suite, self.destination, self.spark = suite, destination, spark
        self._context = context or DestinationContext(1, MemoryStore(), spark, tuple(tables))
        self._start()

    def _start(self) -> None:
        """With an empty store: what is to be known again, the destination knows."""
        self.destination.startup(replace(self._context, store=MemoryStore()))
        self.destination.claim()

    def restart(self) -> None:
        self.close()
        self.destination = self.suite.reopened(self.destination)
        self._start()

    def close(self) -> None:
        self.destination.flush()
        self.destination.shutdown()

    def rows(self, schema: ReplicatedTableSchema) -> list[str]:
        self.destination.flush()
        return comparable(self.suite.read(self.destination, schema.table.name))

    def assert_rows(self, schema: ReplicatedTableSchema, rows: Sequence[Values]) -> None:
        assert self.rows(schema) == comparable(rows)

    def assert_no_table(self, schema: ReplicatedTableSchema) -> None:
        with pytest.raises(Exception):  # noqa: B017, PT011 - each reader has an error of its own
            self.rows(schema)

    def copy(
        self, schema: ReplicatedTableSchema, rows: Sequence[Values], part: int = 0, rejected: Sequence[Values] = ()
    ) -> None:
        self.copy_rows(schema, local_rows(schema, rows, rejected=rejected, spark=self.spark), part)

    def copy_rows(self, schema: ReplicatedTableSchema, rows: LocalRows, part: int = 0) -> None:
        assert self.destination.write_table_rows(schema, rows, part) in Durability

    def changes(self, commit_lsn: Lsn, *happenings: Happening) -> None:
        """A batch of one transaction."""
        self.write(Lsn(commit_lsn + 100), transaction(commit_lsn, *happenings))

    def write(self, end: Lsn, *transactions: Sequence[Event], **given: Any) -> None:
        """As a pipeline does: all tables at once, or a batch for each."""
        batch = batch_of(*transactions, end=end, spark=self.spark, **given)
        parts = [batch] if self.destination.whole_batches else list(batch_per_table(batch))
        for part in parts:
            assert self.destination.write_events(part) in Durability

    def alter(self, commit_lsn: Lsn, old: ReplicatedTableSchema, new: ReplicatedTableSchema) -> None:
        """In a batch of its own, as the pipeline does where the destination says that it can."""
        self.assert_follows(commit_lsn, old, new)
        self.changes(commit_lsn, Altered(old, new))

    def assert_follows(self, commit_lsn: Lsn, old: ReplicatedTableSchema, new: ReplicatedTableSchema) -> None:
        assert self.destination.follows(Relation(commit_lsn, commit_lsn, old, new)), "it would be copied again"

    @contextmanager
    def interrupted(self, moment: Moment) -> Iterator[None]:
        """The block ends by the error of a commit that is interrupted."""
        with (
            self.suite.interrupted(self.destination, moment),
            pytest.raises(Exception),  # noqa: B017, PT011 - a destination may raise it as one of its own
        ):
            yield

    def attempt(self, write: Callable[[], object]) -> None:
        """A write that fails."""
        with pytest.raises(Exception):  # noqa: B017, PT011
            write()
