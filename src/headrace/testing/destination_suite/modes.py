"""The modes of a table: the current rows, every change as a row, the current rows with the deleted ones flagged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ...config.table_mode import TableMode
from ...destinations.change_log import BEFORE, COPIED, OP, SCHEMA_VERSION
from ...destinations.change_log import UNCHANGED as LEFT_OUT
from ...destinations.contract import Destination, DestinationContext
from ...destinations.soft_delete import DELETED, DELETED_AT
from ...errors import ConfigError
from ...events import UNCHANGED
from ...lsn import Lsn
from ...stores.memory import MemoryStore
from ..example_tables import ORDERS, VISITS, altered_table, example_column, example_table
from ..gaps import needs
from ..local_rows import COMMIT_TIME, Deleted, Inserted, Truncated, Updated
from .example_rows import order, visit
from .hooks import DestinationHooks
from .site import Site, Values

__all__ = ["ModeSuite"]

SiteIn = Callable[[TableMode], Site]

_COMMIT = Lsn(1_000)

_MORE = altered_table(ORDERS, *ORDERS.table.columns, example_column("more", 9))
_OWN_NAMES = {
    TableMode.CHANGELOG: example_table(16_701, "logged", {"id": "int8", "_Headrace_op": "text"}, ("id",)),
    TableMode.SOFT_DELETE: example_table(16_702, "kept", {"id": "int8", "_headrace_deleted_at": "text"}, ("id",)),
}


class ModeSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    @needs("in_mode")
    def test_a_mirror_has_the_current_rows(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.MIRROR)
        site.copy(ORDERS, [order(1), order(2)])
        site.changes(_COMMIT, Deleted(ORDERS, {"id": 1}), Inserted(ORDERS, order(3)))
        site.assert_rows(ORDERS, [order(2), order(3)])

    @needs("in_mode")
    def test_a_changelog_has_every_change(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.CHANGELOG)
        site.copy(ORDERS, [order(1), order(2)])
        site.changes(
            _COMMIT,
            Inserted(ORDERS, order(3)),
            Updated(ORDERS, order(3, "b", UNCHANGED)),
            Updated(ORDERS, order(4, "c"), old={"id": 3}),
            Deleted(ORDERS, {"id": 4}),
            Truncated((ORDERS,)),
            Inserted(ORDERS, order(5)),
        )
        expected = [
            *(_copied(order(key)) for key in (1, 2)),
            _logged("I", 0, order(3)),
            _logged("U", 1, order(3, "b", None), left_out=["note"]),
            _logged("U", 2, order(4, "c"), before=order(3, None, None)),
            _logged("D", 3, order(4, None, None), before=order(4, None, None)),
            _logged("T", 4, {"id": None, "name": None, "note": None}),
            _logged("I", 5, order(5)),
        ]
        site.assert_rows(ORDERS, expected)

    @needs("in_mode")
    def test_a_changelog_has_the_whole_row_of_before(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.CHANGELOG)
        site.copy(VISITS, [visit("a", 1)] * 2)
        site.changes(_COMMIT, Updated(VISITS, visit("b", 1), old=visit("a", 1)), Deleted(VISITS, visit("a", 1)))
        expected = [
            *[_copied(visit("a", 1))] * 2,
            _logged("U", 0, visit("b", 1), before=visit("a", 1)),
            _logged("D", 1, visit("a", 1), before=visit("a", 1)),
        ]
        site.assert_rows(VISITS, expected)

    @needs("in_mode")
    def test_a_changelog_takes_a_batch_once(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.CHANGELOG)
        site.copy(ORDERS, [])
        for _ in range(2):
            site.changes(_COMMIT, Inserted(ORDERS, order(1)), Updated(ORDERS, order(1, "b")))
        site.assert_rows(ORDERS, [_logged("I", 0, order(1)), _logged("U", 1, order(1, "b"))])

    @needs("in_mode", "follows")
    def test_a_changelog_follows_its_source(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.CHANGELOG)
        site.copy(ORDERS, [order(1)])
        site.alter(Lsn(300), ORDERS, _MORE)
        site.changes(_COMMIT, Inserted(_MORE, {**order(2), "more": "m"}))
        told = _logged("I", 0, {**order(2), "more": "m"}, version=300)
        site.assert_rows(_MORE, [{**_copied(order(1)), "more": None}, told])

    @needs("in_mode")
    def test_a_changelog_goes_on_when_its_table_is_copied_again(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.CHANGELOG)
        site.copy(ORDERS, [order(1), order(2)])
        site.changes(_COMMIT, Deleted(ORDERS, {"id": 1}))
        before = [
            *(_copied(order(key)) for key in (1, 2)),
            _logged("D", 0, order(1, None, None), before=order(1, None, None)),
        ]
        for _ in range(2):
            site.destination.drop_table_for_copy(ORDERS)
            site.assert_rows(ORDERS, before)
        site.copy(ORDERS, [order(2)], part=0)
        site.copy(ORDERS, [order(3)], part=4)
        first = _end_of(_COMMIT)
        copied = [_emptied(order(0), first), *(_copied(order(key), first) for key in (2, 3))]
        site.assert_rows(ORDERS, [*before, *copied])
        # No changes came since: the next copy is after it all the same.
        site.destination.drop_table_for_copy(ORDERS)
        site.copy(ORDERS, [order(2)])
        second = first + 1
        copied += [_emptied(order(0), second), _copied(order(2), second)]
        # Before what was applied last: it counts again.
        site.changes(_COMMIT, Inserted(ORDERS, order(9)))
        site.assert_rows(ORDERS, [*before, *copied, _logged("I", 0, order(9), version=second)])

    @needs("in_mode")
    def test_a_changelog_keeps_its_columns_when_its_table_is_copied_again(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.CHANGELOG)
        site.copy(ORDERS, [order(1)])
        site.changes(_COMMIT, Inserted(ORDERS, order(2)))
        first, second = (column for column in ORDERS.table.columns if column.name != "note")
        other = altered_table(ORDERS, first, replace(second, name="called"), example_column("more", 9))
        site.destination.drop_table_for_copy(other)
        site.copy(other, [{"id": 5, "called": "c", "more": "m"}])
        site.changes(Lsn(2_000), Deleted(other, {"id": 5}))
        position = _end_of(_COMMIT)

        def now(id_: int | None, called: str | None, note: str | None, more: str | None) -> Values:
            return {"id": id_, "called": called, "note": note, "more": more}

        gone = {**_logged("D", 0, now(5, None, None, None), before=now(5, None, None, None)), SCHEMA_VERSION: position}
        gone |= {"_headrace_commit_lsn": 2_000, "_headrace_xid": 2_000}
        expected = [
            _copied(now(1, order(1)["name"], order(1)["note"], None)),
            _logged("I", 0, now(2, order(2)["name"], order(2)["note"], None)),
            _emptied(now(None, None, None, None), position),
            _copied(now(5, "c", None, "m"), position),
            gone,
        ]
        site.assert_rows(other, expected)

    @needs("in_mode")
    def test_a_table_that_becomes_a_changelog_is_begun_anew(self, destination: Destination, spark: Any) -> None:
        suite = self
        assert isinstance(suite, DestinationHooks)
        modes = (TableMode.CHANGELOG, TableMode.MIRROR, TableMode.CHANGELOG)
        sites = [Site(suite, suite.in_mode(destination, modes[0]), spark)]
        sites[0].copy(ORDERS, [order(1)])
        for mode in modes[1:]:
            sites[-1].close()
            sites.append(Site(suite, suite.in_mode(destination, mode), spark))
            sites[-1].destination.drop_table_for_copy(ORDERS)
            sites[-1].copy(ORDERS, [order(2)])
        sites[-1].assert_rows(ORDERS, [_copied(order(2))])
        sites[-1].close()

    @needs("in_mode")
    def test_soft_delete_flags_deleted_rows(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.SOFT_DELETE)
        site.copy(ORDERS, [order(1), order(2), order(3, "c", "long")])
        site.changes(
            _COMMIT,
            Deleted(ORDERS, {"id": 1}),
            Updated(ORDERS, order(2, "b")),
            Updated(ORDERS, order(7, "moved", UNCHANGED), old={"id": 3}),
            Inserted(ORDERS, order(4)),
            Inserted(ORDERS, order(5)),
            Deleted(ORDERS, {"id": 5}),
        )
        live = [order(2, "b"), order(4), order(7, "moved", "long")]
        gone = [order(1), order(3, "c", "long")]
        site.assert_rows(ORDERS, [*map(_live, live), *map(_gone, gone)])

    @needs("in_mode")
    def test_soft_delete_takes_a_row_back_that_comes_again(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.SOFT_DELETE)
        site.copy(ORDERS, [order(1), order(2)])
        site.changes(_COMMIT, Deleted(ORDERS, {"id": 1}))
        site.assert_rows(ORDERS, [_gone(order(1)), _live(order(2))])
        site.changes(Lsn(3_000), Inserted(ORDERS, order(1, "again")), Deleted(ORDERS, {"id": 2}))
        site.assert_rows(ORDERS, [_live(order(1, "again")), _gone(order(2))])

    @needs("in_mode")
    def test_soft_delete_flags_all_rows_of_a_truncate(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.SOFT_DELETE)
        site.copy(ORDERS, [order(1), order(2)])
        site.changes(_COMMIT, Truncated((ORDERS,)), Inserted(ORDERS, order(2, "again")))
        site.assert_rows(ORDERS, [_gone(order(1)), _live(order(2, "again"))])

    @needs("in_mode")
    def test_soft_delete_without_key(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.SOFT_DELETE)
        site.copy(VISITS, [visit("a", 1)] * 3)
        site.changes(_COMMIT, Deleted(VISITS, visit("a", 1)))
        site.changes(Lsn(3_000), Deleted(VISITS, visit("a", 1)))
        site.assert_rows(VISITS, [_live(visit("a", 1)), *[_gone(visit("a", 1))] * 2])

    @needs("in_mode", "follows")
    def test_soft_delete_follows_its_source(self, site_in: SiteIn) -> None:
        site = site_in(TableMode.SOFT_DELETE)
        site.copy(ORDERS, [order(1), order(2)])
        site.changes(_COMMIT, Deleted(ORDERS, {"id": 1}))
        site.alter(Lsn(3_000), ORDERS, _MORE)
        site.changes(Lsn(5_000), Updated(_MORE, {**order(2), "more": "m"}))
        site.assert_rows(_MORE, [_gone({**order(1), "more": None}), _live({**order(2), "more": "m"})])

    @needs("in_mode")
    def test_columns_named_like_those_of_a_mode_are_refused(self, destination: Destination, spark: Any) -> None:
        suite = self
        assert isinstance(suite, DestinationHooks)
        for mode, table in _OWN_NAMES.items():
            opened = suite.in_mode(destination, mode)
            with pytest.raises(ConfigError, match=table.table.name.name):
                opened.startup(DestinationContext(1, MemoryStore(), spark, (table,)))


def _copied(row: Values, position: int = 0) -> dict[str, Any]:
    """`position`: of a copy that is not the first."""
    place = {"commit_lsn": position or None, "tx_ordinal": 1 if position else None, "xid": None, "commit_time": None}
    own = {f"_headrace_{word}": value for word, value in place.items()}
    return {OP: COPIED, **own, **row, LEFT_OUT: None, BEFORE: None, SCHEMA_VERSION: position}


def _emptied(row: Values, position: int) -> dict[str, Any]:
    """What stands before the rows of a copy that is not the first, in a table with columns as `row` has."""
    return {**_copied(dict.fromkeys(row), position), OP: "T", "_headrace_tx_ordinal": 0}


def _end_of(commit: Lsn) -> int:
    """The last position that a batch with only this commit speaks of: see `Site.changes`."""
    return commit + 99


def _logged(
    op: str,
    ordinal: int,
    row: Values,
    *,
    before: Values | None = None,
    left_out: list[str] | None = None,
    version: int = 0,
) -> dict[str, Any]:
    place = {"commit_lsn": int(_COMMIT), "tx_ordinal": ordinal, "xid": int(_COMMIT), "commit_time": COMMIT_TIME}
    own = {f"_headrace_{word}": value for word, value in place.items()}
    return {OP: op, **own, **row, LEFT_OUT: left_out, BEFORE: before, SCHEMA_VERSION: version}


def _live(row: Values) -> dict[str, Any]:
    return {**row, DELETED: False, DELETED_AT: None}


def _gone(row: Values) -> dict[str, Any]:
    return {**row, DELETED: True, DELETED_AT: COMMIT_TIME}
