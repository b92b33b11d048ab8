"""The example values leave no conversion out, and are values of their types."""

from __future__ import annotations

import pytest

from headrace.pgtypes import registry
from headrace.testing.canonical import canonical, canonical_column
from headrace.testing.example_values import FAMILIES, example_type, family_rows, family_table
from headrace.testing.local_rows import local_rows

TEXT_TYPES = (
    "text", "varchar", "bpchar", "name", "refcursor", "json", "jsonb", "jsonpath", "xml", "uuid", "time", "timetz",
    "interval", "bit", "varbit", "inet", "cidr", "macaddr", "macaddr8", "char", "xid", "cid", "xid8", "tid", "pg_lsn",
    "citext", "ltree", "lquery", "ltxtquery",
)  # fmt: skip


def test_every_conversion_has_an_example() -> None:
    shown = {name.partition("(")[0] for family in FAMILIES.values() for name in family}
    known = {*registry._TYPED, *TEXT_TYPES, "numeric", "hstore"}
    assert known - shown == set()
    kinds = {example_type(name)[0].kind for family in FAMILIES.values() for name in family}
    assert kinds == set("bcdemr")


def test_a_typmod_is_as_postgres_has_it() -> None:
    # As `SELECT atttypmod FROM pg_attribute` shows them.
    told = {"numeric(10,2)": 655366, "_numeric(10,2)": 655366, "varchar(3000)": 3004, "bit(5)": 5, "text": -1}
    assert {name: example_type(name)[1] for name in told} == told


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_of_their_type(family: str) -> None:
    rows = family_rows(family)
    table = local_rows(family_table(family), rows).table
    for name in table.column_names:
        assert canonical_column(table[name]) == [canonical(row[name]) for row in rows]
    assert set(rows[-1].values()) == {None, rows[-1]["id"]}
