"""How a destination follows schema changes, as tests: a part of `DestinationSuite`.

A destination that answers False to `follows` is given a new copy instead, as the pipeline would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..events import Relation
from ..lsn import Lsn
from ..pgtypes.registry import builtin_type
from ..schema import Column, ReplicatedTableSchema, ReplicationMask
from .example_tables import ORDERS
from .local_rows import Altered, Deleted, Inserted, Truncated, Updated, transaction

if TYPE_CHECKING:
    from .destination_suite import _Site

__all__ = ["SchemaChangeSuite"]

_TEXT, _INT, _BIGINT = 25, 23, 20
_ROWS = [{"id": 1, "name": "a", "note": "n1"}, {"id": 2, "name": "b", "note": None}]


def _column(name: str, attnum: int, oid: int = _TEXT, missing: str | None = None) -> Column:
    type_ = builtin_type(oid)
    assert type_ is not None
    return Column(name, attnum, type_, missing=missing)


def _with(schema: ReplicatedTableSchema, *columns: Column) -> ReplicatedTableSchema:
    table = replace(schema.table, columns=tuple(sorted(columns, key=lambda column: column.attnum)))
    return replace(schema, table=table, mask=ReplicationMask.everything(table))


_ID, _NAME, _NOTE = ORDERS.table.columns
_ADDED = _with(ORDERS, _ID, _NAME, _NOTE, _column("more", 9), _column("count", 10, _INT, "7"))
_DROPPED = _with(ORDERS, _ID, _NOTE)
_RENAMED = _with(ORDERS, _ID, replace(_NAME, name='Title, "quoted"'), _NOTE)
_SWAPPED = _with(ORDERS, _ID, replace(_NAME, name="note"), replace(_NOTE, name="name"))
_READDED = _with(ORDERS, _ID, _NAME, _column("note", 9))


class SchemaChangeSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    def _altered(self, site: _Site, new: ReplicatedTableSchema, rows: Sequence[dict[str, Any]]) -> None:
        """Copy, and alter in a batch of its own."""
        site.copy(ORDERS, _ROWS)
        if site.destination.follows(Relation(Lsn(100), Lsn(100), ORDERS, new)):
            site.changes(Lsn(100), Altered(ORDERS, new))
        else:
            site.destination.drop_table_for_copy(ORDERS)
            site.copy(new, rows)
        assert site.rows(new) == site.expected(rows)

    def test_a_column_is_added(self, site: _Site) -> None:
        self._altered(site, _ADDED, [{**row, "more": None, "count": 7} for row in _ROWS])
        site.changes(Lsn(300), Inserted(_ADDED, {"id": 3, "name": "c", "note": "n", "more": "m", "count": None}))
        site.changes(Lsn(500), Updated(_ADDED, {"id": 1, "name": "a", "note": "n1", "more": "x", "count": 8}))
        assert site.rows(_ADDED) == site.expected(
            [
                {"id": 1, "name": "a", "note": "n1", "more": "x", "count": 8},
                {"id": 2, "name": "b", "note": None, "more": None, "count": 7},
                {"id": 3, "name": "c", "note": "n", "more": "m", "count": None},
            ]
        )

    def test_a_column_is_dropped(self, site: _Site) -> None:
        self._altered(site, _DROPPED, [{"id": 1, "note": "n1"}, {"id": 2, "note": None}])
        site.changes(Lsn(300), Updated(_DROPPED, {"id": 2, "note": "now"}))
        assert site.rows(_DROPPED) == site.expected([{"id": 1, "note": "n1"}, {"id": 2, "note": "now"}])

    def test_a_column_is_renamed(self, site: _Site) -> None:
        title = _RENAMED.columns[1].name
        self._altered(site, _RENAMED, [{"id": row["id"], title: row["name"], "note": row["note"]} for row in _ROWS])

    def test_two_columns_exchange_their_names(self, site: _Site) -> None:
        self._altered(site, _SWAPPED, [{"id": row["id"], "note": row["name"], "name": row["note"]} for row in _ROWS])

    def test_a_column_is_dropped_and_one_of_its_name_added(self, site: _Site) -> None:
        self._altered(site, _READDED, [{**row, "note": None} for row in _ROWS])

    def test_a_table_is_altered_between_changes_of_one_batch(self, site: _Site) -> None:
        site.copy(ORDERS, _ROWS)
        if not site.destination.follows(Relation(Lsn(100), Lsn(100), ORDERS, _ADDED)):
            return
        site.changes(
            Lsn(100),
            Inserted(ORDERS, {"id": 3, "name": "before", "note": None}),
            Deleted(ORDERS, {"id": 1}),
            Altered(ORDERS, _ADDED),
            Updated(_ADDED, {"id": 2, "name": "b", "note": "x", "more": "m", "count": 1}),
            Altered(_ADDED, _DROPPED),
            Inserted(_DROPPED, {"id": 4, "note": "after"}),
        )
        assert site.rows(_DROPPED) == site.expected(
            [{"id": 2, "note": "x"}, {"id": 3, "note": None}, {"id": 4, "note": "after"}]
        )

    def test_a_table_is_altered_and_truncated(self, site: _Site) -> None:
        site.copy(ORDERS, _ROWS)
        if not site.destination.follows(Relation(Lsn(100), Lsn(100), ORDERS, _ADDED)):
            return
        row = {"id": 5, "name": "e", "note": None, "more": "m", "count": 2}
        site.changes(Lsn(100), Altered(ORDERS, _ADDED), Truncated((_ADDED,)), Inserted(_ADDED, row))
        assert site.rows(_ADDED) == site.expected([row])

    def test_an_alteration_that_comes_again_has_no_effect(self, site: _Site) -> None:
        rows = [{**row, "more": None, "count": 7} for row in _ROWS]
        self._altered(site, _ADDED, rows)
        site.write(Lsn(200), transaction(Lsn(100), Altered(ORDERS, _ADDED)))
        site.write(Lsn(400), transaction(Lsn(300), Altered(ORDERS, _ADDED)))
        assert site.rows(_ADDED) == site.expected(rows)

    def test_a_table_whose_rows_cannot_follow_is_copied_again(self, site: _Site) -> None:
        site.copy(ORDERS, _ROWS)
        assert site.destination.follows(Relation(Lsn(100), Lsn(100), ORDERS, _ADDED, rewritten=True)) is False
        site.destination.drop_table_for_copy(ORDERS)
        row = {"id": 1, "name": "a", "note": "n1", "more": "new", "count": 3}
        site.copy(_ADDED, [row])
        assert site.rows(_ADDED) == site.expected([row])
        assert site.destination.applied_lsn(_ADDED) in (None, Lsn(0))
