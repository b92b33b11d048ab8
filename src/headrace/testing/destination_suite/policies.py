"""Policies of schema changes, as a destination sees them: tables that are no longer quite what their source is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ...errors import SchemaChangeRefused
from ...lsn import Lsn
from ...schema import ReplicaIdentity, ReplicatedTableSchema
from ...schema_policy import SchemaPolicies, SchemaPolicy, Target, advanced
from ..example_tables import ORDERS, VISITS, altered_table, example_column
from ..gaps import needs
from ..local_rows import Deleted, Inserted, Updated
from .example_rows import order, visit
from .site import Site

__all__ = ["PolicySuite"]

_ID, _NAME, _NOTE = ORDERS.table.columns
_DROPPED = altered_table(ORDERS, _ID, _NOTE)
_RENAMED = altered_table(ORDERS, _ID, replace(_NAME, name="title"), _NOTE)
_ADDED = altered_table(ORDERS, _ID, _NAME, _NOTE, example_column("more", 9))
_PAGES = altered_table(VISITS, VISITS.table.columns[0], identity=ReplicaIdentity.FULL, identity_attnums=(1,))


class PolicySuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    @needs("follows")
    def test_lenient_keeps_a_column_that_was_dropped(self, site: Site) -> None:
        target = _target(SchemaPolicy.LENIENT, _DROPPED)
        site.copy(ORDERS, [order(1), order(2)])
        site.alter(Lsn(100), ORDERS, target)
        site.changes(Lsn(300), Updated(target, order(1, None, "new")), Inserted(target, order(3, None)))
        site.assert_rows(target, [order(1, None, "new"), order(2), order(3, None)])

    @needs("follows")
    def test_lenient_adds_a_column_for_one_that_was_renamed(self, site: Site) -> None:
        target = _target(SchemaPolicy.LENIENT, _RENAMED)
        assert [column.name for column in target.columns] == ["id", "name", "note", "title"]
        site.copy(ORDERS, [order(1), order(2)])
        site.alter(Lsn(100), ORDERS, target)
        site.changes(Lsn(300), Updated(target, {**order(1, None), "title": "t"}))
        site.assert_rows(target, [{**order(1, None), "title": "t"}, {**order(2), "title": None}])

    @needs("follows")
    def test_ignore_leaves_the_table_as_it_is(self, site: Site) -> None:
        target = _target(SchemaPolicy.IGNORE, _ADDED, _DROPPED)
        site.copy(ORDERS, [order(1)])
        site.alter(Lsn(100), ORDERS, target)
        site.changes(Lsn(300), Inserted(target, order(2, None)))
        site.assert_rows(target, [order(1), order(2, None)])

    @needs("follows")
    def test_rows_without_key_are_found_when_a_column_was_dropped(self, site: Site) -> None:
        target = _target(SchemaPolicy.LENIENT, _PAGES, source=VISITS)
        site.copy(VISITS, [visit("a", 1), visit("b", 2), visit("c", 3), visit("c", 4)])
        site.alter(Lsn(100), VISITS, target)
        # What fills a column no more tells no rows apart.
        site.changes(Lsn(300), Deleted(target, visit("a", None)), *[Deleted(target, visit("c", None))] * 2)
        site.changes(Lsn(500), Updated(target, visit("d", None), old=visit("b", None)))
        site.changes(Lsn(700), Inserted(target, visit("e", None)), Inserted(target, visit("f", None)))
        site.changes(Lsn(900), Deleted(target, visit("e", None)))
        site.assert_rows(target, [visit("d", None), visit("f", None)])

    def test_error_leaves_the_table_as_it_is_until_it_is_copied_again(self, site: Site) -> None:
        site.copy(ORDERS, [order(1)])
        with pytest.raises(SchemaChangeRefused):
            _target(SchemaPolicy.ERROR, _ADDED)
        # What came before the refused change is still written, and nothing behind it.
        site.changes(Lsn(100), Inserted(ORDERS, order(2)))
        site.assert_rows(ORDERS, [order(1), order(2)])
        site.destination.drop_table_for_copy(_ADDED)
        site.copy(_ADDED, [{**order(3), "more": "m"}])
        site.assert_rows(_ADDED, [{**order(3), "more": "m"}])


def _target(
    policy: SchemaPolicy, *versions: ReplicatedTableSchema, source: ReplicatedTableSchema = ORDERS
) -> ReplicatedTableSchema:
    """The destination's table when its source goes through these versions."""
    target, known = Target.same(source), source
    for version in versions:
        target, known = advanced(SchemaPolicies(policy), target, known, version), version
    return target.schema
