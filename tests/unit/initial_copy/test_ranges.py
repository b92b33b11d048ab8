"""A range's SQL."""

from __future__ import annotations

import pickle

import pytest

from headrace.initial_copy.ranges import CopyRange, CtidBounds, KeyBounds
from headrace.schema import TableName

WHOLE = CopyRange(TableName("public", "t"), ("id", "note"))
SELECT = 'SELECT "id", "note" FROM ONLY "public"."t"'


@pytest.mark.parametrize(
    ("bounds", "where"),
    [
        (None, ""),
        (CtidBounds(), ""),
        (CtidBounds(None, 7), " WHERE ctid < '(7,0)'::pg_catalog.tid"),
        (CtidBounds(7, 9), " WHERE ctid >= '(7,0)'::pg_catalog.tid AND ctid < '(9,0)'::pg_catalog.tid"),
        (CtidBounds(9, None), " WHERE ctid >= '(9,0)'::pg_catalog.tid"),
        (KeyBounds("id", "int8"), ""),
        (KeyBounds("id", "int8", None, "5"), """ WHERE "id" < '5'::pg_catalog."int8\""""),
        (
            KeyBounds('o"id', "timestamptz", "-infinity", "2024-01-01 00:00:00+00"),
            """ WHERE "o""id" >= '-infinity'::pg_catalog."timestamptz\""""
            """ AND "o""id" < '2024-01-01 00:00:00+00'::pg_catalog."timestamptz\"""",
        ),
    ],
)
def test_bounds(bounds: CtidBounds | KeyBounds | None, where: str) -> None:
    assert CopyRange(WHOLE.relation, WHOLE.columns, bounds=bounds).copy_sql() == SELECT + where


def test_the_row_filter_is_one_term() -> None:
    part = CopyRange(WHOLE.relation, WHOLE.columns, "a OR b", CtidBounds(3))
    assert part.copy_sql() == f"{SELECT} WHERE ctid >= '(3,0)'::pg_catalog.tid AND (a OR b)"
    assert CopyRange(WHOLE.relation, WHOLE.columns, "a OR b").copy_sql() == f"{SELECT} WHERE (a OR b)"


def test_names_and_literals_are_quoted() -> None:
    part = CopyRange(TableName('my "Schema"', "Order"), ('a"b', "Select"), bounds=KeyBounds("k", "uuid", "o'x"))
    assert part.copy_sql() == (
        'SELECT "a""b", "Select" FROM ONLY "my ""Schema"""."Order"'
        """ WHERE "k" >= 'o''x'::pg_catalog."uuid\""""
    )


def test_partitions_are_read_only_when_asked_for() -> None:
    part = CopyRange(WHOLE.relation, WHOLE.columns, descendants=True)
    assert part.copy_sql() == 'SELECT "id", "note" FROM "public"."t"'


def test_a_range_travels() -> None:
    part = CopyRange(WHOLE.relation, WHOLE.columns, "x", KeyBounds("id", "int8", "1", "2"), True, 10, 1000)
    assert pickle.loads(pickle.dumps(part)) == part
