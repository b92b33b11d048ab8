"""The initial copy: tables created, rows added, parts on record, tables dropped and copied anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ...lsn import Lsn
from ...schema import ReplicatedTableSchema
from ..example_tables import ORDERS, SAMPLES, VISITS, example_table
from ..gaps import needs
from ..local_rows import Inserted, RetriedRows, local_rows
from .broken_rows import BrokenRows
from .example_rows import order, visit
from .site import Site, Values

__all__ = ["CopySuite"]

_MANY = 2_500
"""Enough for rows to come in several parts."""
_WIDER = example_table(
    ORDERS.table.id, "orders", {"id": "int8", "name": "numeric", "note": "text", "more": "_text"}, ("id",)
)
"""ORDERS as it may be when it is copied again: another type, another column."""


class CopySuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    def test_an_empty_table_is_created(self, site: Site) -> None:
        site.copy(ORDERS, [])
        site.assert_rows(ORDERS, [])

    def test_a_table_that_was_empty_takes_rows(self, site: Site) -> None:
        site.copy(SAMPLES, [])
        row: Values = {column.name: 1 if column.name == "id" else None for column in SAMPLES.columns}
        site.changes(Lsn(100), Inserted(SAMPLES, row))
        site.assert_rows(SAMPLES, [row])

    def test_copied_rows_are_added(self, site: Site) -> None:
        site.copy(ORDERS, [order(1), order(2, None, "")])
        site.assert_rows(ORDERS, [order(1), order(2, None, "")])

    def test_ranges_of_a_table_are_copied_side_by_side(self, site: Site) -> None:
        """Within one call, by tasks: calls for one table never overlap."""
        rows = [order(i, f"n{i}", None) for i in range(4 * _MANY)]
        site.copy(ORDERS, rows)
        site.assert_rows(ORDERS, rows)

    def test_a_range_that_a_task_wrote_twice_counts_once(self, site: Site) -> None:
        """Of a task that ran again, or beside another, one result is told of; what the other left must not count."""
        rows = [order(i, f"n{i}", None) for i in range(_MANY)]
        whole = local_rows(ORDERS, rows, spark=site.spark)
        site.copy_rows(ORDERS, RetriedRows(whole.table, spark=site.spark))
        site.assert_rows(ORDERS, rows)
        # Nor later, with what is committed next.
        site.copy(ORDERS, [order(_MANY)], part=1)
        site.assert_rows(ORDERS, [*rows, order(_MANY)])

    def test_the_parts_of_a_copy_are_added_one_by_one(self, site: Site) -> None:
        for part, key in ((0, 1), (7, 2), (3, 3)):
            site.copy(ORDERS, [order(key), order(key + 10)], part=part)
        site.assert_rows(ORDERS, [order(key + more) for key in (1, 2, 3) for more in (0, 10)])

    def test_parts_without_rows_are_no_harm(self, site: Site) -> None:
        site.copy(ORDERS, [], part=0)
        site.copy(ORDERS, [order(1)], part=1)
        site.copy(ORDERS, [], part=2)
        site.assert_rows(ORDERS, [order(1)])

    @needs("copied_parts")
    def test_a_part_that_comes_again_is_added_once(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)], part=0)
        site.copy(ORDERS, [order(2)], part=7)
        site.destination.flush()
        assert site.destination.copied_parts(ORDERS) == frozenset({0, 7})
        assert site.destination.copied_parts(VISITS) == frozenset()
        for part, key in ((7, 2), (0, 1)):
            site.copy(ORDERS, [order(key)], part=part)
        site.assert_rows(ORDERS, [order(1), order(2)])

    @needs("copied_parts")
    def test_a_part_that_could_not_be_read_comes_again(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)], part=0)
        whole = local_rows(ORDERS, [order(i) for i in range(2, _MANY)], spark=site.spark)
        site.attempt(lambda: site.copy_rows(ORDERS, BrokenRows(whole.table), 1))
        assert site.destination.copied_parts(ORDERS) == frozenset({0})
        site.assert_rows(ORDERS, [order(1)])
        site.copy_rows(ORDERS, whole, 1)
        site.assert_rows(ORDERS, [order(i) for i in range(1, _MANY)])

    def test_tables_are_written_side_by_side(self, site: Site) -> None:
        tables = [example_table(16_500 + i, f"t{i}", {"id": "int8"}, ("id",)) for i in range(4)]

        def fill(table: ReplicatedTableSchema) -> None:
            for part in range(3):
                site.copy(table, [{"id": table.table.id + part * 100}], part=part)
            if not site.destination.whole_batches:
                site.changes(Lsn(100), *(Inserted(table, {"id": i}) for i in range(10)))

        with ThreadPoolExecutor(len(tables)) as threads:
            list(threads.map(fill, tables))
        if site.destination.whole_batches:
            site.changes(Lsn(100), *(Inserted(table, {"id": i}) for i in range(10) for table in tables))
        for table in tables:
            copied = [table.table.id + part * 100 for part in range(3)]
            site.assert_rows(table, [{"id": i} for i in (*range(10), *copied)])

    def test_a_table_is_dropped_and_copied_anew(self, site: Site) -> None:
        site.destination.drop_table_for_copy(ORDERS)
        site.copy(ORDERS, [order(1)])
        site.copy(VISITS, [visit("a", 1)])
        site.changes(Lsn(100), Inserted(ORDERS, order(2)))
        for _ in range(2):
            site.destination.drop_table_for_copy(ORDERS)
        site.copy(ORDERS, [order(3)])
        # Before what was applied last: it counts again, for the table is another one.
        site.changes(Lsn(90), Inserted(ORDERS, order(4)))
        site.assert_rows(ORDERS, [order(3), order(4)])
        site.assert_rows(VISITS, [visit("a", 1)])

    @needs("applied_lsn")
    def test_a_table_that_is_copied_anew_forgets_its_lsn(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        site.changes(Lsn(100), Inserted(ORDERS, order(2)))
        assert site.destination.applied_lsn(ORDERS) == Lsn(200)
        site.destination.drop_table_for_copy(ORDERS)
        assert site.destination.applied_lsn(ORDERS) is None
        site.copy(ORDERS, [order(3)])
        assert site.destination.applied_lsn(ORDERS) is None

    @needs("copied_parts")
    def test_a_copy_that_was_cut_short_is_begun_anew(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)], part=0)
        site.copy(ORDERS, [order(2)], part=1)
        site.destination.drop_table_for_copy(ORDERS)
        assert site.destination.copied_parts(ORDERS) == frozenset()
        site.copy(ORDERS, [order(3)], part=1)
        assert site.destination.copied_parts(ORDERS) == frozenset({1})
        site.copy(ORDERS, [], part=0)
        site.assert_rows(ORDERS, [order(3)])

    def test_a_new_copy_without_rows_leaves_none(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        site.destination.drop_table_for_copy(ORDERS)
        site.copy(ORDERS, [])
        site.assert_rows(ORDERS, [])

    def test_a_table_is_copied_again_with_other_columns(self, site: Site) -> None:
        site.copy(ORDERS, [order(1), order(2)])
        site.changes(Lsn(100), Inserted(ORDERS, order(3)))
        site.destination.drop_table_for_copy(_WIDER)
        row: Values = {"id": 2, "name": None, "note": "n", "more": ["a", None]}
        site.copy(_WIDER, [row])
        site.changes(Lsn(300), Inserted(_WIDER, {**row, "id": 4}))
        site.assert_rows(_WIDER, [row, {**row, "id": 4}])

    def test_a_table_is_dropped(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        site.copy(VISITS, [visit("a", 1)])
        for _ in range(2):
            site.destination.drop_table(ORDERS)
            site.assert_no_table(ORDERS)
        site.assert_rows(VISITS, [visit("a", 1)])
        site.copy(ORDERS, [order(2)])
        site.assert_rows(ORDERS, [order(2)])
