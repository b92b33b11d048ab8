"""What comes twice, what is cut off, and what a restart finds: every change takes effect once."""

from __future__ import annotations

from ...lsn import Lsn
from ..example_tables import ORDERS, VISITS
from ..gaps import needs
from ..local_rows import Deleted, Inserted, Truncated, Updated, batch_of, transaction
from .broken_rows import broken
from .example_rows import order, visit
from .hooks import Moment
from .site import Site

__all__ = ["CrashSuite"]

_BEFORE = [order(1), order(2), order(3)]
_CHANGES = (
    Inserted(ORDERS, order(4)),
    Updated(ORDERS, order(1, "b")),
    Updated(ORDERS, order(5, "moved"), old={"id": 2}),
    Deleted(ORDERS, {"id": 3}),
)
_AFTER = [order(1, "b"), order(4), order(5, "moved")]


class CrashSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    def test_a_batch_that_comes_again_has_no_effect(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        site.copy(VISITS, [visit("a", 1)])
        happened = (
            Inserted(ORDERS, order(2)),
            Updated(ORDERS, order(5), old={"id": 1}),
            Inserted(VISITS, visit("b", 1)),
        )
        for _ in range(2):
            site.changes(Lsn(100), *happened)
        site.assert_rows(ORDERS, [order(2), order(5)])
        site.assert_rows(VISITS, [visit("a", 1), visit("b", 1)])

    def test_an_older_batch_that_comes_again_undoes_nothing(self, site: Site) -> None:
        site.copy(ORDERS, _BEFORE)
        site.changes(Lsn(100), *_CHANGES)
        later = (Updated(ORDERS, order(4, "newer")), Inserted(ORDERS, order(3, "again")))
        site.changes(Lsn(300), *later)
        site.changes(Lsn(100), *_CHANGES)
        site.changes(Lsn(300), *later)
        site.assert_rows(ORDERS, [order(1, "b"), order(3, "again"), order(4, "newer"), order(5, "moved")])

    def test_a_truncate_that_comes_again_has_no_effect(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        for _ in range(2):
            site.changes(Lsn(100), Truncated((ORDERS,)), Inserted(ORDERS, order(2)))
        site.changes(Lsn(300), Inserted(ORDERS, order(3)))
        site.changes(Lsn(100), Truncated((ORDERS,)), Inserted(ORDERS, order(2)))
        site.assert_rows(ORDERS, [order(2), order(3)])

    @needs("applied_lsn")
    def test_the_lsn_is_on_record(self, site: Site) -> None:
        assert site.destination.applied_lsn(ORDERS) is None
        site.copy(ORDERS, [order(1)])
        site.copy(VISITS, [])
        assert site.destination.applied_lsn(ORDERS) is None
        site.changes(Lsn(100), Inserted(ORDERS, order(2)))
        site.destination.flush()
        assert site.destination.applied_lsn(ORDERS) == Lsn(200)
        assert site.destination.applied_lsn(VISITS) is None
        site.changes(Lsn(300), Truncated((ORDERS,)))
        site.destination.flush()
        assert site.destination.applied_lsn(ORDERS) == Lsn(400)

    def test_a_batch_that_cannot_be_read_leaves_nothing_behind(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        happened = (Inserted(ORDERS, order(3)), Truncated((ORDERS,)), Inserted(ORDERS, order(4)))
        whole = batch_of(transaction(Lsn(100), *happened), end=Lsn(200), spark=site.spark)
        site.attempt(lambda: site.destination.write_events(broken(whole)))
        site.assert_rows(ORDERS, [order(1)])
        assert site.destination.applied_lsn(ORDERS) is None
        site.destination.write_events(whole)
        site.assert_rows(ORDERS, [order(4)])

    @needs("interrupted")
    def test_a_batch_interrupted_before_its_commit_comes_again(self, site: Site) -> None:
        site.copy(ORDERS, _BEFORE)
        with site.interrupted(Moment.BEFORE_COMMIT):
            site.changes(Lsn(100), *_CHANGES)
        site.assert_rows(ORDERS, _BEFORE)
        assert site.destination.applied_lsn(ORDERS) is None
        site.changes(Lsn(100), *_CHANGES)
        site.assert_rows(ORDERS, _AFTER)

    @needs("interrupted")
    def test_a_batch_interrupted_after_its_commit_comes_again(self, site: Site) -> None:
        site.copy(ORDERS, _BEFORE)
        with site.interrupted(Moment.AFTER_COMMIT):
            site.changes(Lsn(100), *_CHANGES)
        site.assert_rows(ORDERS, _AFTER)
        site.changes(Lsn(100), *_CHANGES)
        site.assert_rows(ORDERS, _AFTER)

    @needs("interrupted", "copied_parts")
    def test_a_part_interrupted_before_its_commit_comes_again(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)], part=0)
        with site.interrupted(Moment.BEFORE_COMMIT):
            site.copy(ORDERS, [order(2)], part=1)
        site.assert_rows(ORDERS, [order(1)])
        assert site.destination.copied_parts(ORDERS) == frozenset({0})
        site.copy(ORDERS, [order(2)], part=1)
        site.assert_rows(ORDERS, [order(1), order(2)])

    @needs("interrupted", "copied_parts")
    def test_a_part_interrupted_after_its_commit_comes_again(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)], part=0)
        with site.interrupted(Moment.AFTER_COMMIT):
            site.copy(ORDERS, [order(2)], part=1)
        assert site.destination.copied_parts(ORDERS) == frozenset({0, 1})
        site.copy(ORDERS, [order(2)], part=1)
        site.assert_rows(ORDERS, [order(1), order(2)])

    @needs("reopened", "applied_lsn", "copied_parts")
    def test_a_restart_finds_all_at_the_destination(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)], part=0)
        site.copy(ORDERS, [order(2), order(3)], part=4)
        site.copy(VISITS, [visit("a", 1)] * 2)
        site.restart()
        assert site.destination.copied_parts(ORDERS) == frozenset({0, 4})
        assert site.destination.applied_lsn(ORDERS) is None
        site.changes(Lsn(100), *_CHANGES)
        site.restart()
        assert site.destination.applied_lsn(ORDERS) == Lsn(200)
        assert site.destination.applied_lsn(VISITS) is None
        site.changes(Lsn(100), *_CHANGES)
        site.assert_rows(ORDERS, _AFTER)
        site.changes(Lsn(300), Deleted(ORDERS, {"id": 1}), Deleted(VISITS, visit("a", 1)))
        site.assert_rows(ORDERS, [order(4), order(5, "moved")])
        site.assert_rows(VISITS, [visit("a", 1)])

    @needs("reopened", "copied_parts")
    def test_a_copy_goes_on_after_a_restart(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)], part=0)
        site.restart()
        for part, key in ((0, 1), (1, 2)):
            site.copy(ORDERS, [order(key)], part=part)
        site.assert_rows(ORDERS, [order(1), order(2)])

    @needs("reopened", "copied_parts")
    def test_a_new_copy_that_a_restart_cut_short_is_begun_anew(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        site.destination.drop_table_for_copy(ORDERS)
        site.restart()
        assert site.destination.copied_parts(ORDERS) == frozenset()
        site.copy(ORDERS, [order(2)])
        site.assert_rows(ORDERS, [order(2)])

    @needs("reopened", "interrupted", "applied_lsn")
    def test_a_crash_before_the_commit(self, site: Site) -> None:
        site.copy(ORDERS, _BEFORE)
        with site.interrupted(Moment.BEFORE_COMMIT):
            site.changes(Lsn(100), *_CHANGES)
        site.restart()
        assert site.destination.applied_lsn(ORDERS) is None
        site.assert_rows(ORDERS, _BEFORE)
        site.changes(Lsn(100), *_CHANGES)
        site.assert_rows(ORDERS, _AFTER)

    @needs("reopened", "interrupted", "applied_lsn")
    def test_a_crash_after_the_commit(self, site: Site) -> None:
        site.copy(ORDERS, _BEFORE)
        with site.interrupted(Moment.AFTER_COMMIT):
            site.changes(Lsn(100), *_CHANGES)
        site.restart()
        assert site.destination.applied_lsn(ORDERS) == Lsn(200)
        site.changes(Lsn(100), *_CHANGES)
        site.assert_rows(ORDERS, _AFTER)
