"""Tables without key: rows are told by all their values, and equal ones counted."""

from __future__ import annotations

from ...lsn import Lsn
from ..example_tables import INSERTS_ONLY, VISITS
from ..local_rows import Deleted, Inserted, Truncated, Updated
from .example_rows import visit
from .site import Site

__all__ = ["KeylessTableSuite"]


class KeylessTableSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    def test_equal_rows_are_deleted_one_by_one(self, site: Site) -> None:
        site.copy(VISITS, [visit("a", 1)] * 3 + [visit("b", None)] * 2)
        site.changes(
            Lsn(100),
            Deleted(VISITS, visit("a", 1)),
            Updated(VISITS, visit("c", 3), old=visit("b", None)),
            Inserted(VISITS, visit("a", 1)),
            Deleted(VISITS, visit("a", 1)),
        )
        site.assert_rows(VISITS, [visit("a", 1), visit("a", 1), visit("b", None), visit("c", 3)])

    def test_rows_of_nothing_but_null(self, site: Site) -> None:
        site.copy(VISITS, [visit(None, None)] * 2 + [visit("", None), visit(None, 0)])
        site.changes(
            Lsn(100), Deleted(VISITS, visit(None, None)), Updated(VISITS, visit(None, 1), old=visit(None, None))
        )
        site.assert_rows(VISITS, [visit("", None), visit(None, 0), visit(None, 1)])

    def test_rows_of_many_batches_are_found_again(self, site: Site) -> None:
        site.copy(VISITS, [visit("a", 1)] * 2)
        site.changes(Lsn(100), *[Inserted(VISITS, visit("a", 1))] * 2)
        site.changes(Lsn(300), *[Deleted(VISITS, visit("a", 1))] * 3)
        site.assert_rows(VISITS, [visit("a", 1)])
        site.changes(Lsn(500), Deleted(VISITS, visit("a", 1)), Inserted(VISITS, visit("b", 2)))
        site.assert_rows(VISITS, [visit("b", 2)])

    def test_a_table_without_key_is_truncated(self, site: Site) -> None:
        site.copy(VISITS, [visit("a", 1)] * 2)
        site.changes(Lsn(100), Truncated((VISITS,)), Inserted(VISITS, visit("a", 1)))
        site.assert_rows(VISITS, [visit("a", 1)])

    def test_equal_rows_of_a_table_that_is_only_inserted_into(self, site: Site) -> None:
        site.copy(INSERTS_ONLY, [visit("a", 1)])
        site.changes(Lsn(100), *[Inserted(INSERTS_ONLY, visit("a", 1))] * 2)
        site.assert_rows(INSERTS_ONLY, [visit("a", 1)] * 3)
