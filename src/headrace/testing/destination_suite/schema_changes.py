"""How a destination follows schema changes: by altering its table, so that the rows that are there are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from ...events import Relation
from ...lsn import Lsn
from ...schema import ReplicaIdentity, ReplicatedTableSchema, ReplicationMask, TableName
from ..example_tables import ORDERS, VISITS, altered_table, example_column, example_table
from ..gaps import needs
from ..local_rows import Altered, Deleted, Inserted, Truncated, Updated
from .example_rows import visit
from .site import Site

__all__ = ["SchemaChangeSuite"]

_ROWS = [{"id": 1, "name": "a", "note": "n1"}, {"id": 2, "name": "b", "note": None}]
_ID, _NAME, _NOTE = ORDERS.table.columns
_MORE = altered_table(ORDERS, _ID, _NAME, _NOTE, example_column("more", 9))
_COUNTED = altered_table(
    ORDERS,
    _ID,
    _NAME,
    _NOTE,
    example_column("count", 9, "int4", missing="7"),
    example_column("price", 10, "numeric(10,2)", missing="1.50"),
    example_column("word", 11, missing="ä'\""),
    example_column("at", 12, "timestamptz", missing="2024-02-29 12:34:56.789+00"),
    example_column("yes", 13, "bool", missing="t"),
)
_SHOWN = {"count": 7, "price": Decimal("1.50"), "word": "ä'\"", "at": "2024-02-29T12:34:56.789000+00:00", "yes": True}
_DROPPED = altered_table(ORDERS, _ID, _NOTE)
_RENAMED = altered_table(ORDERS, _ID, replace(_NAME, name='Title, "quoted"'), _NOTE)
_SWAPPED = altered_table(ORDERS, _ID, replace(_NAME, name="note"), replace(_NOTE, name="name"))
_READDED = altered_table(ORDERS, _ID, _NAME, example_column("note", 9, "int4"))
_MOVED = replace(ORDERS, table=replace(ORDERS.table, name=TableName("public", "Bestellungen")))
_BY_NAME = altered_table(
    ORDERS,
    replace(_ID, key_position=None),
    replace(_NAME, key_position=1, nullable=False),
    _NOTE,
    identity_attnums=(_NAME.attnum,),
)
_REQUIRED = altered_table(ORDERS, _ID, replace(_NAME, nullable=False), _NOTE)
_DEFAULTED = altered_table(ORDERS, _ID, replace(_NAME, default="'new'::text"), _NOTE)
_HIDDEN = replace(ORDERS, mask=ReplicationMask(ORDERS.mask.attnums - {_NOTE.attnum}))
_WITHOUT_KEY = altered_table(
    ORDERS, replace(_ID, key_position=None), _NAME, _NOTE, identity=ReplicaIdentity.FULL, identity_attnums=(1, 2, 3)
)
_PAGES = altered_table(VISITS, VISITS.table.columns[0], identity=ReplicaIdentity.FULL, identity_attnums=(1,))


def _typed(type_name: str) -> ReplicatedTableSchema:
    return example_table(16_450, "measures", {"id": "int8", "value": type_name}, ("id",))


class SchemaChangeSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    @needs("follows")
    def test_a_column_is_added(self, site: Site) -> None:
        _alter(site, _MORE, [{**row, "more": None} for row in _ROWS])
        site.changes(Lsn(300), Inserted(_MORE, {"id": 3, "name": "c", "note": "n", "more": "m"}))
        site.changes(Lsn(500), Updated(_MORE, {"id": 1, "name": "a", "note": "n1", "more": "x"}))
        expected = [{**_ROWS[0], "more": "x"}, {**_ROWS[1], "more": None}]
        site.assert_rows(_MORE, [*expected, {"id": 3, "name": "c", "note": "n", "more": "m"}])

    @needs("follows")
    def test_a_column_is_added_with_a_value_for_existing_rows(self, site: Site) -> None:
        _alter(site, _COUNTED, [{**row, **_SHOWN} for row in _ROWS])
        nothing = dict.fromkeys(_SHOWN)
        site.changes(Lsn(300), Inserted(_COUNTED, {"id": 3, "name": "c", "note": "n", **nothing}))
        site.changes(Lsn(500), Updated(_COUNTED, {"id": 1, "name": "a", "note": "n1", **nothing, "count": 8}))
        expected = [{**_ROWS[0], **nothing, "count": 8}, {**_ROWS[1], **_SHOWN}]
        site.assert_rows(_COUNTED, [*expected, {"id": 3, "name": "c", "note": "n", **nothing}])

    @needs("follows")
    def test_columns_are_added_to_an_empty_table(self, site: Site) -> None:
        site.copy(ORDERS, [])
        site.alter(Lsn(100), ORDERS, _COUNTED)
        site.assert_rows(_COUNTED, [])
        row = {**_ROWS[0], **_SHOWN}
        site.changes(Lsn(300), Inserted(_COUNTED, {**row, "at": None}))
        site.assert_rows(_COUNTED, [{**row, "at": None}])

    @needs("follows")
    def test_a_column_is_dropped(self, site: Site) -> None:
        _alter(site, _DROPPED, [{"id": 1, "note": "n1"}, {"id": 2, "note": None}])
        site.changes(Lsn(300), Updated(_DROPPED, {"id": 2, "note": "now"}))
        site.assert_rows(_DROPPED, [{"id": 1, "note": "n1"}, {"id": 2, "note": "now"}])

    @needs("follows")
    def test_a_column_is_renamed(self, site: Site) -> None:
        title = _RENAMED.columns[1].name
        rows = [{"id": row["id"], title: row["name"], "note": row["note"]} for row in _ROWS]
        _alter(site, _RENAMED, rows)
        site.changes(Lsn(300), Inserted(_RENAMED, {"id": 3, title: "c", "note": None}))
        site.assert_rows(_RENAMED, [*rows, {"id": 3, title: "c", "note": None}])

    @needs("follows")
    def test_two_columns_exchange_their_names(self, site: Site) -> None:
        _alter(site, _SWAPPED, [{"id": row["id"], "note": row["name"], "name": row["note"]} for row in _ROWS])

    @needs("follows")
    def test_a_column_is_dropped_and_one_of_its_name_added(self, site: Site) -> None:
        _alter(site, _READDED, [{**row, "note": None} for row in _ROWS])
        site.changes(Lsn(300), Updated(_READDED, {"id": 1, "name": "a", "note": 5}))
        site.assert_rows(_READDED, [{"id": 1, "name": "a", "note": 5}, {"id": 2, "name": "b", "note": None}])

    @needs("follows")
    def test_integers_become_wider(self, site: Site) -> None:
        _widen(site, "int2", "int4", [-(2**15), None, 7], 2**31 - 1)

    @needs("follows")
    def test_integers_become_bigint(self, site: Site) -> None:
        _widen(site, "int4", "int8", [-(2**31), None, 7], 2**63 - 1)

    @needs("follows")
    def test_floats_become_double(self, site: Site) -> None:
        # Values that are the same in single and double precision.
        _widen(site, "float4", "float8", [-0.5, None, 1024.25], 0.1)

    @needs("follows")
    def test_decimals_take_more_digits(self, site: Site) -> None:
        _widen(site, "numeric(10,2)", "numeric(38,2)", [Decimal("99999999.99"), None], Decimal("9" * 36 + ".99"))

    @needs("follows")
    def test_texts_become_longer(self, site: Site) -> None:
        _widen(site, "varchar(10)", "varchar(20)", ["x" * 10, None, ""], "x" * 20)
        site.assert_follows(Lsn(500), _typed("varchar(20)"), _typed("text"))

    @needs("follows")
    def test_another_column_becomes_the_key(self, site: Site) -> None:
        _alter(site, _BY_NAME, _ROWS)
        site.changes(
            Lsn(300),
            Updated(_BY_NAME, {"id": 7, "name": "a", "note": "by name"}),
            Deleted(_BY_NAME, {"id": None, "name": "b", "note": None}),
            Inserted(_BY_NAME, {"id": 7, "name": "c", "note": None}),
        )
        expected = [{"id": 7, "name": "a", "note": "by name"}, {"id": 7, "name": "c", "note": None}]
        site.assert_rows(_BY_NAME, expected)

    @needs("follows")
    def test_a_column_takes_no_more_nulls_and_takes_them_again(self, site: Site) -> None:
        _alter(site, _REQUIRED, _ROWS)
        site.changes(Lsn(300), Inserted(_REQUIRED, {"id": 3, "name": "c", "note": None}))
        site.alter(Lsn(500), _REQUIRED, ORDERS)
        site.changes(Lsn(700), Updated(ORDERS, {"id": 3, "name": None, "note": None}))
        site.assert_rows(ORDERS, [*_ROWS, {"id": 3, "name": None, "note": None}])

    @needs("follows")
    def test_a_default_is_for_the_source_alone(self, site: Site) -> None:
        """Rows come with all their values: a NULL of the source is none that a default fills."""
        _alter(site, _DEFAULTED, _ROWS)
        site.changes(Lsn(300), Inserted(_DEFAULTED, {"id": 3, "name": None, "note": None}))
        site.alter(Lsn(500), _DEFAULTED, ORDERS)
        site.assert_rows(ORDERS, [*_ROWS, {"id": 3, "name": None, "note": None}])

    @needs("follows")
    def test_a_column_that_is_no_longer_published(self, site: Site) -> None:
        rows = [{"id": row["id"], "name": row["name"]} for row in _ROWS]
        _alter(site, _HIDDEN, rows)
        site.changes(Lsn(300), Inserted(_HIDDEN, {"id": 3, "name": "c"}), Updated(_HIDDEN, {"id": 1, "name": "x"}))
        site.assert_rows(_HIDDEN, [{"id": 1, "name": "x"}, rows[1], {"id": 3, "name": "c"}])

    def test_a_column_that_is_published_anew_is_copied_again(self, site: Site) -> None:
        hidden = [{"id": row["id"], "name": row["name"]} for row in _ROWS]
        site.copy(_HIDDEN, hidden)
        site.assert_rows(_HIDDEN, hidden)
        site.destination.drop_table_for_copy(ORDERS)
        site.copy(ORDERS, _ROWS)
        site.assert_rows(ORDERS, _ROWS)

    @needs("follows")
    def test_a_table_loses_its_key(self, site: Site) -> None:
        _alter(site, _WITHOUT_KEY, _ROWS)
        site.changes(Lsn(300), *[Inserted(_WITHOUT_KEY, _ROWS[0])] * 2, Deleted(_WITHOUT_KEY, _ROWS[1]))
        site.assert_rows(_WITHOUT_KEY, [_ROWS[0]] * 3)

    @needs("follows")
    def test_a_table_is_renamed(self, site: Site) -> None:
        _alter(site, _MOVED, _ROWS)
        site.changes(Lsn(300), Deleted(_MOVED, {"id": 1}))
        site.assert_rows(_MOVED, _ROWS[1:])
        site.assert_no_table(ORDERS)

    @needs("follows")
    def test_a_table_is_altered_between_changes_of_one_batch(self, site: Site) -> None:
        site.copy(ORDERS, _ROWS)
        site.assert_follows(Lsn(100), ORDERS, _MORE)
        site.assert_follows(Lsn(100), _MORE, _DROPPED)
        site.changes(
            Lsn(100),
            Inserted(ORDERS, {"id": 3, "name": "before", "note": None}),
            Deleted(ORDERS, {"id": 1}),
            Altered(ORDERS, _MORE),
            Updated(_MORE, {"id": 2, "name": "b", "note": "x", "more": "m"}),
            Altered(_MORE, _DROPPED),
            Inserted(_DROPPED, {"id": 4, "note": "after"}),
        )
        site.assert_rows(_DROPPED, [{"id": 2, "note": "x"}, {"id": 3, "note": None}, {"id": 4, "note": "after"}])

    @needs("follows")
    def test_rows_without_key_go_before_a_column_that_told_them_apart(self, site: Site) -> None:
        site.copy(VISITS, [visit("a", 1), visit("a", 2), visit("a", 3), visit("b", 1)])
        site.assert_follows(Lsn(100), VISITS, _PAGES)
        site.changes(
            Lsn(100),
            Deleted(VISITS, visit("a", 1)),
            Deleted(VISITS, visit("a", 2)),
            Altered(VISITS, _PAGES),
            Inserted(_PAGES, {"page": "c"}),
        )
        site.assert_rows(_PAGES, [{"page": "a"}, {"page": "b"}, {"page": "c"}])

    @needs("follows")
    def test_a_table_is_altered_and_truncated(self, site: Site) -> None:
        site.copy(ORDERS, _ROWS)
        row = {"id": 5, "name": "e", "note": None, "more": "m"}
        site.assert_follows(Lsn(100), ORDERS, _MORE)
        site.changes(Lsn(100), Altered(ORDERS, _MORE), Truncated((_MORE,)), Inserted(_MORE, row))
        site.assert_rows(_MORE, [row])

    @needs("follows")
    def test_an_alteration_that_comes_again_has_no_effect(self, site: Site) -> None:
        rows = [{**row, **_SHOWN} for row in _ROWS]
        _alter(site, _COUNTED, rows)
        site.changes(Lsn(100), Altered(ORDERS, _COUNTED))
        site.changes(Lsn(300), Altered(ORDERS, _COUNTED))
        site.assert_rows(_COUNTED, rows)

    @needs("follows", "reopened")
    def test_a_restart_knows_an_altered_table(self, site: Site) -> None:
        swapped = [{"id": row["id"], "note": row["name"], "name": row["note"]} for row in _ROWS]
        _alter(site, _SWAPPED, swapped)
        site.restart()
        site.changes(Lsn(300), Altered(ORDERS, _SWAPPED))
        site.assert_rows(_SWAPPED, swapped)
        site.alter(Lsn(500), _SWAPPED, _DROPPED)
        site.assert_rows(_DROPPED, [{"id": row["id"], "note": row["note"]} for row in _ROWS])

    def test_a_table_whose_rows_were_rewritten_is_copied_again(self, site: Site) -> None:
        site.copy(ORDERS, _ROWS)
        assert site.destination.follows(Relation(Lsn(100), Lsn(100), ORDERS, _MORE, rewritten=True)) is False
        site.destination.drop_table_for_copy(ORDERS)
        row = {"id": 1, "name": "a", "note": "n1", "more": "new"}
        site.copy(_MORE, [row])
        site.assert_rows(_MORE, [row])

    def test_a_type_that_holds_other_values_is_copied_again(self, site: Site) -> None:
        text, number = _typed("text"), _typed("int4")
        site.copy(text, [{"id": 1, "value": "7"}])
        site.destination.drop_table_for_copy(number)
        site.copy(number, [{"id": 1, "value": 7}])
        site.changes(Lsn(300), Inserted(number, {"id": 2, "value": -1}))
        site.assert_rows(number, [{"id": 1, "value": 7}, {"id": 2, "value": -1}])


def _alter(site: Site, new: ReplicatedTableSchema, rows: Sequence[Any]) -> None:
    """Copy ORDERS, and alter it in a batch of its own."""
    site.copy(ORDERS, _ROWS)
    site.alter(Lsn(100), ORDERS, new)
    site.assert_rows(new, rows)


def _widen(site: Site, before: str, after: str, values: Sequence[object], more: object) -> None:
    """More values of the new type come after those of the old one; an old row takes one, a new row takes one."""
    old, new = _typed(before), _typed(after)
    rows = [{"id": i, "value": value} for i, value in enumerate(values)]
    site.copy(old, rows)
    site.alter(Lsn(100), old, new)
    site.assert_rows(new, rows)
    site.changes(Lsn(300), Updated(new, {"id": 0, "value": more}), Inserted(new, {"id": 9, "value": more}))
    site.assert_rows(new, [{"id": 0, "value": more}, *rows[1:], {"id": 9, "value": more}])
