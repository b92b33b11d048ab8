"""Names of tables, columns and schemas as Postgres allows them; those that collide are told before anything is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...destinations.contract import Destination
from ...errors import ConfigError
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema, TableName
from ..example_tables import ORDERS, altered_table, example_table
from ..gaps import needs
from ..local_rows import Deleted, Inserted, Updated
from .hooks import DestinationHooks
from .site import Site, Values

__all__ = ["NameSuite"]

_LONGEST = 63
"""Bytes of a name in Postgres."""


class NameSuite:
    """Mixed into `DestinationSuite`, whose fixtures it uses."""

    def test_names_in_mixed_case(self, site: Site) -> None:
        _assert_usable(site, "MixedCase", "Id", "someValue")

    def test_unicode_names(self, site: Site) -> None:
        _assert_usable(site, "größe 表 😀", "schlüssel", "значение")

    def test_reserved_words_as_names(self, site: Site) -> None:
        _assert_usable(site, "select", "table", "order")

    def test_names_of_63_bytes(self, site: Site) -> None:
        _assert_usable(site, "t" * _LONGEST, "k" * _LONGEST, "ü" * (_LONGEST // 2))

    def test_quotes_in_names(self, site: Site) -> None:
        _assert_usable(site, 'it\'s "quoted" `so`', 'k"ey', "v'al`ue")

    def test_dots_and_spaces_in_names(self, site: Site) -> None:
        _assert_usable(site, "a.b c", "k.ey", " v. al ")

    def test_signs_in_names(self, site: Site) -> None:
        _assert_usable(site, "50%/a\\b:c?d#e", "k%s", "{v}$1;--")

    def test_control_characters_and_separators_in_names(self, site: Site) -> None:
        _assert_usable(site, "a\tb\nc\x0b\x1c\x85\u2028d", "k\ney", "v\u2029al")

    @needs("follows")
    def test_a_column_takes_a_name_with_signs(self, site: Site) -> None:
        key, name, note = ORDERS.table.columns
        renamed = altered_table(ORDERS, key, replace(name, name='a."b" c'), replace(note, name="Größe's `%`"))
        site.copy(ORDERS, [{"id": 1, "name": "a", "note": "n"}])
        site.alter(Lsn(100), ORDERS, renamed)
        site.changes(Lsn(300), Inserted(renamed, {"id": 2, 'a."b" c': None, "Größe's `%`": "x"}))
        expected: list[Values] = [
            {"id": 1, 'a."b" c': "a", "Größe's `%`": "n"},
            {"id": 2, 'a."b" c': None, "Größe's `%`": "x"},
        ]
        site.assert_rows(renamed, expected)

    def test_tables_of_one_name_in_two_schemas(self, site: Site) -> None:
        ours, theirs = _in_schema(ORDERS, "public", ORDERS.table.id), _in_schema(ORDERS, "Größe 'x'", 16_499)
        for schema, key in ((ours, 1), (theirs, 2)):
            site.copy(schema, [{"id": key, "name": None, "note": None}])
        for schema, key in ((ours, 1), (theirs, 2)):
            site.assert_rows(schema, [{"id": key, "name": None, "note": None}])

    def test_signs_in_names_of_schemas(self, site: Site) -> None:
        """What a URI ends at, what a path is cut at, and what lines are split at: each schema has files of its own."""
        named = enumerate(("a", "a#b", "a#c", "a?b", "a/b", "a%23b", "..", "a:*\\b", "a\nb", "a\u2028b"))
        tables = {key: _in_schema(ORDERS, name, 16_500 + key) for key, name in named}
        for key, table in tables.items():
            site.copy(table, [{"id": key, "name": "copied", "note": None}])
        for key, table in tables.items():
            site.changes(Lsn(100 + key), Inserted(table, {"id": -1, "name": "new", "note": str(key)}))
        for key, table in tables.items():
            site.assert_rows(
                table, [{"id": -1, "name": "new", "note": str(key)}, {"id": key, "name": "copied", "note": None}]
            )

    def test_columns_whose_names_differ_in_case_only(self, site: Site) -> None:
        table = example_table(16_803, "cases", {"id": "int8", "name": "text", "Name": "text"}, ("id",))
        site.copy(table, [{"id": 1, "name": "a", "Name": "A"}])
        site.changes(Lsn(100), Inserted(table, {"id": 2, "name": "b", "Name": None}))
        site.assert_rows(table, [{"id": 1, "name": "a", "Name": "A"}, {"id": 2, "name": "b", "Name": None}])

    def test_tables_whose_names_collide_are_refused_or_kept_apart(self, destination: Destination, spark: Any) -> None:
        suite = self
        assert isinstance(suite, DestinationHooks)
        tables = [example_table(16_801 + i, name, {"id": "int8"}, ("id",)) for i, name in enumerate(("Same", "same"))]
        site, kept = Site(suite, destination, spark, tables), []
        for table in tables:
            try:
                site.copy(table, [{"id": table.table.id}])
            except ConfigError as refused:
                assert "public.Same and public.same" in str(refused)  # noqa: PT017 - not every destination refuses it
                assert refused.hint  # noqa: PT017
            else:
                kept.append(table)
        assert kept
        for table in kept:
            site.assert_rows(table, [{"id": table.table.id}])
        site.close()


def _assert_usable(site: Site, table_name: str, key: str, value: str) -> None:
    table = example_table(16_800, table_name, {key: "int8", value: "text"}, (key,))
    site.copy(table, [{key: i, value: "copied"} for i in range(3)])
    site.changes(
        Lsn(100), Updated(table, {key: 0, value: "new"}), Deleted(table, {key: 1}), Inserted(table, {key: 3, value: ""})
    )
    site.assert_rows(table, [{key: 0, value: "new"}, {key: 2, value: "copied"}, {key: 3, value: ""}])


def _in_schema(schema: ReplicatedTableSchema, name: str, table_id: int) -> ReplicatedTableSchema:
    return replace(schema, table=replace(schema.table, id=table_id, name=TableName(name, schema.table.name.name)))
