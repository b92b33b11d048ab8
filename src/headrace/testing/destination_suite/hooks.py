"""What a subclass of the suite gives: the destination, how it is read, and how it is opened otherwise or disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, ClassVar

import pytest

from ...config.table_mode import TableMode
from ...destinations.contract import Destination
from ...schema import TableName
from ..gaps import Gap, declare
from .site import Site, Values

__all__ = ["DestinationHooks", "Moment", "Values"]


class Moment(StrEnum):
    """When a commit is interrupted: before it took effect, or after it and before that is known."""

    BEFORE_COMMIT = "before commit"
    AFTER_COMMIT = "after commit"


class DestinationHooks:
    """Subclasses give `destination` and `read`; of the others those that are no gaps of theirs."""

    title: ClassVar[str] = ""
    """What the docs call the destination in their table of what each does; empty: it is not listed there."""
    gaps: ClassVar[Mapping[str, Gap]] = {}
    """What the destination does not do: by test, or by what tests need."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        declare(cls, cls.__dict__.get("gaps", {}))

    @pytest.fixture
    def destination(self) -> Destination:
        """A destination that was not started yet, over an empty place."""
        raise NotImplementedError

    def read(self, destination: Any, table: TableName) -> Sequence[Values]:
        """The rows that the destination has of a table, in any order; raises if there is no such table."""
        raise NotImplementedError

    def quarantined(self, destination: Any, table: TableName) -> Sequence[Values] | None:
        """What the quarantine has of a table, with the fields of `REJECTED_FIELDS`; None: there is no quarantine."""
        del destination, table
        return None

    def in_mode(self, destination: Any, mode: TableMode) -> Destination:
        """A destination that was not started, over the place of this one, whose tables are kept in a mode."""
        raise _not_given(self, "in_mode")

    def reopened(self, destination: Any) -> Destination:
        """A new destination, not started, over the place of one that was shut down; or not yet, where two runs meet."""
        raise _not_given(self, "reopened")

    def interrupted(self, destination: Any, moment: Moment) -> AbstractContextManager[None]:
        """Within it the next commit of rows fails, with any error that is no sign of a retry. Only that one does."""
        raise _not_given(self, "interrupted")

    @pytest.fixture
    def spark(self) -> Any:
        """A SparkSession, for destinations that need one."""
        return None

    @pytest.fixture
    def site(self, destination: Destination, spark: Any) -> Iterator[Site]:
        """The destination, started."""
        site = Site(self, destination, spark)
        yield site
        site.close()

    @pytest.fixture
    def site_in(self, destination: Destination, spark: Any) -> Iterator[Callable[[TableMode], Site]]:
        """The destination, started in a mode; once in a test."""
        sites = []

        def opened(mode: TableMode) -> Site:
            sites.append(Site(self, self.in_mode(destination, mode), spark))
            return sites[-1]

        yield opened
        for site in sites:
            site.close()


def _not_given(suite: object, hook: str) -> NotImplementedError:
    return NotImplementedError(f"override {type(suite).__name__}.{hook}, or say why not: gaps = {{{hook!r}: Gap(…)}}")
