"""The promise of a transform: what becomes of one version of a table, in the copy, in the stream and event by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...events import Delete, Insert, Update
from ...schema import ReplicatedTableSchema
from ..contract import DestinationContext
from ..rows import Rows

__all__ = ["RowEvent", "Transform", "Transforms"]

RowEvent = Insert | Update | Delete


class Transform(Protocol):
    """What happens to rows of one version. The same values come out whichever way they go in, and every time."""

    @property
    def target(self) -> ReplicatedTableSchema:
        """What the table looks like behind it."""

    def rows(self, rows: Rows) -> Rows:
        """Rows of the initial copy."""

    def changes(self, rows: Rows) -> Rows:
        """Changes, as `batch.Changes` has them."""

    def events(self, events: Sequence[RowEvent]) -> Sequence[RowEvent | None]:
        """Events of this version, each with what takes its place; None: nothing does."""

    def follows(self, old: Transform | None) -> bool:
        """Whether rows that came through the one of the version before can be made right; if not, they are copied."""


class Transforms(Protocol):
    """What happens to tables."""

    def startup(self, context: DestinationContext) -> None:
        """Raises ConfigError for settings that name what is not there. `of` is asked for each table next."""

    def of(self, schema: ReplicatedTableSchema) -> Transform | None:
        """What happens to this version of a table; None: nothing. Called once per version, by one thread at a time."""
