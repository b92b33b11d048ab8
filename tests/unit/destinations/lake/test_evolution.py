"""Plans for altering a table, without Iceberg: what is edited, which ids come next, what cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.config.json_as import JsonAs
from headrace.destinations.lake.evolution.alteration import Alteration, CannotAlter
from headrace.destinations.lake.evolution.column_record import ColumnRecord, RecordedColumn
from headrace.destinations.lake.evolution.field_types import is_same_type, widens, with_ids
from headrace.destinations.lake.evolution.planning import Definition, altered_log, altered_table, replaced_table
from headrace.destinations.lake.evolution.wanted import WantedColumn, wanted_columns
from headrace.schema import Column
from iceberg_altering import column, table


def _wanted(*columns: Column, key: tuple[str, ...] = (), json_as: JsonAs = JsonAs.STRING) -> tuple[WantedColumn, ...]:
    return wanted_columns(table(*columns, key=key), key, json_as)


def _field(number: int, name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind, **more}


def _there(*fields: dict[str, Any], pinned: frozenset[int] = frozenset(), last_id: int = 10) -> Definition:
    record = ColumnRecord(tuple(RecordedColumn(n, field["id"]) for n, field in enumerate(fields, 1)))
    return Definition(json.dumps({"type": "struct", "fields": fields}), last_id, record, pinned)


def _fields(altered: Alteration) -> list[tuple[int, str, Any]]:
    return [(one["id"], one["name"], one["type"]) for one in json.loads(altered.schema_json)["fields"]]


def _altered(there: Definition, *columns: Column, **options: Any) -> Alteration:
    return altered_table(there, _wanted(*columns, **options), {}, may_require=True)


def test_what_is_there_already_alters_nothing() -> None:
    there = _there(_field(1, "a", "int"), _field(2, "b", "decimal(10, 2)", doc="of b"))
    again = _altered(there, column(1, "a", "int4"), column(2, "b", "numeric(10,2)", comment="of b"))
    assert not again.alters_schema
    assert again.properties == {"headrace.columns": there.record.text()}


def test_ids_are_those_that_come_next() -> None:
    there = _there(_field(1, "a", "int"), last_id=7)
    altered = _altered(there, column(1, "b", "int4"), column(2, "l", "_int4"), column(3, "a", "int8", "5"))
    element = {"type": "list", "element-id": 9, "element": "int", "element-required": False}
    assert _fields(altered) == [(1, "b", "int"), (8, "l", element), (10, "a", "long")]
    assert altered.record == ColumnRecord.read('[{"attnum":1,"id":1},{"attnum":2,"id":8},{"attnum":3,"id":10}]')
    after = there.after(altered)
    assert after.last_id == 10
    once_more = altered_table(after, _wanted(column(3, "a", "int8"), column(4, "n", "int4")), {}, may_require=True)
    assert _fields(once_more) == [(10, "a", "long"), (11, "n", "int")]


def test_a_float_default_is_widened_as_readers_see_it() -> None:
    there = _there(_field(1, "f", "float", **{"initial-default": 0.1}))
    entry = json.loads(_altered(there, column(1, "f", "float8")).schema_json)["fields"][0]
    assert entry["initial-default"] == 0.10000000149011612


@pytest.mark.parametrize(
    ("old", "new", "wider"),
    [
        ("int", "long", True),
        ("long", "int", False),
        ("float", "double", True),
        ("int", "double", False),
        ("decimal(6, 2)", "decimal(9,2)", True),
        ("decimal(6, 2)", "decimal(5,2)", False),
        ("decimal(6, 2)", "decimal(9,3)", False),
        ("date", "timestamp", False),
        ({"type": "list", "element": "int"}, {"type": "list", "element": "long"}, False),
    ],
)
def test_widening(old: Any, new: Any, wider: bool) -> None:
    assert widens(old, new) is wider


def test_types_are_compared_without_ids() -> None:
    one = {"type": "map", "key": "string", "value": {"type": "list", "element": "int"}}
    counter = iter(range(5, 100))
    numbered = with_ids(one, lambda: next(counter))
    assert (numbered["key-id"], numbered["value-id"], numbered["value"]["element-id"]) == (5, 6, 7)
    assert is_same_type(one, numbered)
    assert not is_same_type(one, {**numbered, "key": "int"})


def test_columns_that_the_partitions_are_made_from() -> None:
    there = _there(_field(1, "a", "int"), _field(2, "b", "int"), pinned=frozenset({1}))
    assert _altered(there, column(1, "renamed", "int4")).edited[0].deleted
    for columns in ([column(2, "b", "int4")], [column(1, "a", "int8"), column(2, "b", "int4")]):
        with pytest.raises(CannotAlter, match="partitioned or sorted"):
            _altered(there, *columns)
        with pytest.raises(CannotAlter, match="partitioned or sorted"):
            replaced_table(there, _wanted(*columns), {})


def test_a_column_of_somebody_else_is_left_alone_unless_its_name_is_needed() -> None:
    there = _there(_field(1, "a", "int"))
    schema = json.loads(there.schema_json)
    schema["fields"].append(_field(9, "mine", "string"))
    there = Definition(json.dumps(schema), 10, there.record)
    assert (9, "mine", "string") in _fields(_altered(there, column(1, "a", "int8")))
    with pytest.raises(CannotAlter, match="has a column mine already"):
        _altered(there, column(1, "a", "int4"), column(2, "mine", "int4"))
    assert _fields(replaced_table(there, _wanted(column(1, "a", "int4"), column(2, "mine", "int4")), {})) == [
        (1, "a", "int"),
        (11, "mine", "int"),
    ]


def test_a_column_of_another_type_stands_where_the_old_one_stood() -> None:
    there = _there(_field(1, "a", "long"), _field(2, "b", "string"), _field(3, "c", "int"))
    replaced = replaced_table(
        there, _wanted(column(1, "a", "text"), column(2, "b", "text"), column(3, "c", "int4")), {}
    )
    assert _fields(replaced) == [(11, "a", "string"), (2, "b", "string"), (3, "c", "int")]
    assert replaced.order == ("a", "b", "c")
    assert _altered(there, column(1, "a", "int8"), column(3, "c", "int4"), column(4, "d", "text")).order == ()


def test_an_identifier_that_is_renamed_is_named_anew() -> None:
    there = _there(_field(1, "id", "int"), _field(2, "code", "string"))
    keyed = there.after(_altered(there, column(1, "id", "int4"), column(2, "code", "text"), key=("id",)))
    swapped = _altered(keyed, column(1, "code", "int4"), column(2, "id", "text"), key=("code",))
    assert (swapped.identifiers, swapped.required) == (("code",), ())
    other = _altered(keyed, column(1, "id", "int4"), column(2, "renamed", "text"), key=("id",))
    assert other.identifiers is None


def test_json_stays_what_it_is() -> None:
    there = _there(_field(1, "doc", "string"))
    altered = _altered(there, column(1, "doc", "jsonb"), column(2, "more", "json"), json_as=JsonAs.VARIANT)
    assert _fields(altered) == [(1, "doc", "string"), (11, "more", "variant")]
    with pytest.raises(CannotAlter, match="has a default"):
        _altered(there, column(1, "doc", "jsonb"), column(2, "more", "json", "{}"), json_as=JsonAs.VARIANT)
    with pytest.raises(CannotAlter, match="cannot become string from variant"):
        _altered(_there(_field(1, "doc", "variant")), column(1, "doc", "jsonb"), key=("doc",))


def test_a_log_gives_new_names_until_one_is_free() -> None:
    log = _there(_field(1, "x", "int"), _field(2, "x_1", "int"))
    altered = altered_log(log, _wanted(column(2, "x_1", "int4"), column(3, "x", "text")), {})
    assert [name for _, name, _ in _fields(altered)][:3] == ["x_1_1", "x_1", "x"]
    # Back again, it goes on where it was, under another name than it has there.
    again = altered_log(log.after(altered), _wanted(column(1, "x", "int8"), column(3, "y", "text")), {})
    assert [(number, name) for number, name, _ in _fields(again)][:3] == [(1, "x"), (2, "x_1"), (11, "y")]
    assert [one.live for one in again.record.columns] == [True, True, False]
