"""Two runs of one pipeline at one destination: the one that claimed it last writes, the other is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ...destinations.contract import Destination, DestinationContext, SourceIdentity
from ...errors import DestinationFenced, DestinationRejected, PipelineStateError
from ...lsn import Lsn
from ...stores.memory import MemoryStore
from ..example_tables import ORDERS, VISITS, altered_table, example_column
from ..gaps import needs
from ..local_rows import Altered, Deleted, Inserted, Truncated, Updated
from .example_rows import order, visit
from .site import Site

if TYPE_CHECKING:
    from .hooks import DestinationHooks

__all__ = ["FencingSuite"]

_WIDER = altered_table(ORDERS, *ORDERS.table.columns, example_column("more", 9))
_SHOP, _CRM = SourceIdentity("7301", "shop"), SourceIdentity("7301", "crm")


class FencingSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    @needs("claim", "reopened")
    def test_a_run_that_was_replaced_streams_nothing(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        site.changes(Lsn(100), Inserted(ORDERS, order(2)))
        with _replacing(site) as second:
            for happening in (
                Inserted(ORDERS, order(3)),
                Updated(ORDERS, order(1, "late")),
                Deleted(ORDERS, {"id": 1}),
                Truncated((ORDERS,)),
                Altered(ORDERS, _WIDER),
                Inserted(VISITS, visit("a", 1)),
            ):
                _refused(lambda late=happening: site.changes(Lsn(300), late))  # type: ignore[misc]
            second.assert_rows(ORDERS, [order(1), order(2)])
            second.assert_no_table(VISITS)
            _assert_on_record(second.destination, Lsn(200))

    @needs("claim", "reopened")
    def test_a_run_that_was_replaced_copies_nothing(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        with _replacing(site) as second:
            _refused(lambda: site.copy(ORDERS, [order(2)], part=1))
            _refused(lambda: site.copy(VISITS, [visit("a", 1)]))
            second.assert_rows(ORDERS, [order(1)])
            second.assert_no_table(VISITS)
            assert second.destination.copied_parts(ORDERS) in (None, frozenset({0}))

    @needs("claim", "reopened")
    def test_a_run_that_was_replaced_drops_nothing(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        site.changes(Lsn(100), Inserted(ORDERS, order(2)))
        with _replacing(site) as second:
            _refused(lambda: site.destination.drop_table_for_copy(ORDERS))
            _refused(lambda: site.destination.drop_table(ORDERS))
            second.assert_rows(ORDERS, [order(1), order(2)])
            _assert_on_record(second.destination, Lsn(200))

    @needs("claim", "reopened")
    def test_the_lsn_never_goes_back(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        with _replacing(site) as second:
            second.changes(Lsn(300), Inserted(ORDERS, order(2)))
            _refused(lambda: site.changes(Lsn(100), Inserted(ORDERS, order(2))))
            _assert_on_record(second.destination, Lsn(400))
            second.changes(Lsn(500), Updated(ORDERS, order(2, "b")))
            second.assert_rows(ORDERS, [order(1), order(2, "b")])

    @needs("reopened")
    def test_a_run_that_only_started_replaces_nobody(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        second = site.suite.reopened(site.destination)
        second.startup(DestinationContext(1, MemoryStore(), site.spark))
        site.changes(Lsn(100), Inserted(ORDERS, order(2)))
        site.copy(VISITS, [visit("a", 1)])
        second.shutdown()
        site.assert_rows(ORDERS, [order(1), order(2)])
        site.assert_rows(VISITS, [visit("a", 1)])

    @needs("claim", "reopened")
    def test_another_source_under_the_same_pipeline_id_is_refused(self, destination: Destination, spark: Any) -> None:
        suite: DestinationHooks = self  # type: ignore[assignment]
        destination.startup(DestinationContext(1, MemoryStore(), spark, source=_SHOP, run_id="one"))
        destination.claim()
        other = suite.reopened(destination)
        other.startup(DestinationContext(1, MemoryStore(), spark, source=_CRM, run_id="two"))
        with pytest.raises(DestinationRejected, match=r"(?s)database shop.*database crm"):
            other.claim()
        other.shutdown()
        again = suite.reopened(destination)
        again.startup(DestinationContext(1, MemoryStore(), spark, source=_SHOP, run_id="three"))
        again.claim()
        again.shutdown()
        destination.shutdown()

    @needs("claim", "reopened")
    def test_a_claim_that_the_owner_must_not_lose_changes_nothing(self, destination: Destination, spark: Any) -> None:
        suite: DestinationHooks = self  # type: ignore[assignment]
        owners: list[str] = []

        def refuse(owner: str) -> None:
            owners.append(owner)
            raise PipelineStateError("pipeline 1 is running")

        first = DestinationContext(1, MemoryStore(), spark, source=_SHOP, run_id="one")
        site = Site(suite, destination, spark, context=first)
        site.copy(ORDERS, [order(1)])
        replay = suite.reopened(destination)
        replay.startup(DestinationContext(1, MemoryStore(), spark, run_id="replay", check_owner=refuse))
        with pytest.raises(PipelineStateError):
            replay.claim()
        replay.shutdown()
        assert owners == [str(_SHOP)]
        site.changes(Lsn(100), Inserted(ORDERS, order(2)))
        site.assert_rows(ORDERS, [order(1), order(2)])
        site.close()


@contextmanager
def _replacing(site: Site) -> Iterator[Site]:
    """A second run over the place of one that is still open."""
    second = Site(site.suite, site.suite.reopened(site.destination), site.spark)
    yield second
    second.close()


def _refused(write: Callable[[], object]) -> None:
    with pytest.raises(DestinationFenced, match="another run of pipeline 1"):
        write()


def _assert_on_record(destination: Destination, lsn: Lsn) -> None:
    assert destination.applied_lsn(ORDERS) in (None, lsn)
