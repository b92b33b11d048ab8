"""Iceberg tables follow their source's schema changes; pyiceberg, DuckDB and Spark see the same rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.events import UNCHANGED
from headrace.lsn import Lsn
from headrace.schema import ReplicatedTableSchema, TableName
from headrace.testing.local_rows import Altered, Deleted, Inserted, Truncated, Updated
from iceberg_altering import Altering, column, relation, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Altering]
T = TableName("public", "t")
UTC = dt.UTC
ID = column(1, "id", "int4")
V1 = table(ID, column(2, "a", "int4"), column(3, "f", "float4"), column(4, "n", "numeric(6,2)"), column(5, "s", "text"))


@pytest.fixture
def altering(tmp_path: Path, spark: SparkSession) -> Make:
    return lambda **settings: Altering(tmp_path / "warehouse", spark, **settings)


def _row(identity: int, **values: Any) -> dict[str, Any]:
    return {"id": identity, "a": identity * 10, "f": 0.1, "n": Decimal("1.50"), "s": f"s{identity}", **values}


def test_all_kinds_of_changes_and_rows_in_one_commit(altering: Make) -> None:
    lab = altering()
    lab.copy(V1, *(_row(n) for n in (1, 2, 3, 4)))
    before = len(lab.table().metadata.metadata_log)
    # Widened, renamed, dropped, added with a default, and the name of the dropped one taken again.
    second = table(
        column(1, "id", "int8"), column(2, "amount", "int8"), column(3, "f", "float8"), column(4, "n", "numeric(12,2)"),
        column(6, "s", "text", missing="né'w", comment="once more"), column(7, "yes", "bool", missing="t"),
    )  # fmt: skip
    # Names swapped, and one more.
    third = table(
        column(1, "id", "int8"), column(2, "f", "int8"), column(3, "amount", "float8"), column(4, "n", "numeric(12,2)"),
        column(6, "s", "text", missing="né'w"), column(7, "yes", "bool", missing="t"), column(8, "z", "int4"),
    )  # fmt: skip
    narrow, wide = 0.10000000149011612, 1 << 40
    lab.write(
        Inserted(V1, _row(5)),
        Updated(V1, _row(1, a=11, s=UNCHANGED)),
        Altered(V1, second),
        # What was not sent is what rows of before show.
        Updated(second, {"id": 2, "amount": wide, "f": 0.5, "n": Decimal(7), "s": UNCHANGED, "yes": UNCHANGED}),
        Inserted(second, {"id": wide, "amount": 6, "f": 0.25, "n": None, "s": "mine", "yes": False}),
        Deleted(second, {"id": 3}),
        Altered(second, third),
        Updated(third, {"id": 4, "f": 44, "amount": UNCHANGED, "n": None, "s": UNCHANGED, "yes": None, "z": 9}),
    )
    expected = [
        {"id": 1, "f": 11, "amount": narrow, "n": Decimal("1.50"), "s": "né'w", "yes": True, "z": None},
        {"id": 2, "f": wide, "amount": 0.5, "n": Decimal("7.00"), "s": "né'w", "yes": True, "z": None},
        {"id": 4, "f": 44, "amount": narrow, "n": None, "s": "né'w", "yes": None, "z": 9},
        {"id": 5, "f": 50, "amount": narrow, "n": Decimal("1.50"), "s": "né'w", "yes": True, "z": None},
        {"id": wide, "f": 6, "amount": 0.25, "n": None, "s": "mine", "yes": False, "z": None},
    ]
    by_id = sorted(expected, key=lambda row: repr(row["id"]))
    assert lab.read() == by_id
    found = lab.table()
    assert len(found.metadata.metadata_log) == before + 1
    assert found.properties["headrace.lsn"] == str(lab.lsn)
    assert found.schema().find_field("s").doc is None
    assert found.schema().identifier_field_names() == {"id"}
    # Once more, by a pipeline that was started again and does not know how far it was; and what it finds is compacted.
    lab.restart()
    lab.lsn = Lsn(lab.lsn + 10)
    lab.write(Altered(second, third), Deleted(third, {"id": wide}), Updated(third, {**expected[1], "f": UNCHANGED}))
    lab.restart(maintenance={"enabled": False, "small_files": 2})
    lab.destination.applied_lsn(third)
    lab.destination.maintain(T)
    assert lab.read() == [row for row in by_id if row["id"] != wide]
    assert len(list(lab.table().scan().plan_files())) == 1


DEFAULTS = {
    "bool": ("f", False),
    "int2": ("-7", -7),
    "int4": ("7", 7),
    "int8": ("5000000000", 5_000_000_000),
    "float4": ("0.25", 0.25),
    "float8": ("-0.1", -0.1),
    "numeric(12,3)": ("1.500", Decimal("1.500")),
    "text": ("", ""),
    "varchar": ('a "b" \\ \n ü', 'a "b" \\ \n ü'),
    "bytea": ("\\x00ff", b"\x00\xff"),
    "date": ("1969-07-20", dt.date(1969, 7, 20)),
    "timestamp": ("2020-02-03 04:05:06.000007", dt.datetime(2020, 2, 3, 4, 5, 6, 7, tzinfo=UTC)),
    "timestamptz": ("2020-02-03 04:05:06+00", dt.datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)),
    "jsonb": ('{"a": 1}', '{"a": 1}'),
}


def test_defaults_of_all_types(altering: Make) -> None:
    lab = altering()
    old = table(ID)
    lab.copy(old, {"id": 1})
    added = [column(n, f"c{n}", kind, text) for n, (kind, (text, _)) in enumerate(DEFAULTS.items(), 2)]
    new = table(ID, *added)
    nothing: dict[str, Any] = {one.name: None for one in added}
    lab.write(Altered(old, new), Inserted(new, {"id": 2, **nothing}))
    shown = {one.name: value for one, (_, value) in zip(added, DEFAULTS.values(), strict=True)}
    assert lab.read() == [{"id": 1, **shown}, {"id": 2, **nothing}]
    assert [row["id"] for row in lab.sql("SELECT id FROM headrace.public.t WHERE c4 = 7")] == [1]
    assert lab.table().scan(row_filter="c4 is null").to_arrow()["id"].to_pylist() == [2]


def test_rows_without_key_are_found_by_what_they_show(altering: Make) -> None:
    lab = altering()
    old = table(column(1, "a", "int4"), column(2, "f", "float4"), key=())
    new = table(column(1, "a", "int8"), column(2, "g", "float8"), column(3, "d", "date", "2020-01-01"), key=())
    lab.copy(old, *({"a": n, "f": 0.1} for n in (1, 1, 2, 3)))
    day, value = dt.date(2020, 1, 1), 0.10000000149011612
    lab.write(
        Altered(old, new),
        Deleted(new, {"a": 1, "g": value, "d": day}),
        Updated(new, {"a": 2, "g": 7.0, "d": None}, old={"a": 2, "g": value, "d": day}),
    )
    expected = [{"a": 1, "g": value, "d": day}, {"a": 2, "g": 7.0, "d": None}, {"a": 3, "g": value, "d": day}]
    assert lab.read(order="a") == expected


def test_another_key(altering: Make) -> None:
    lab = altering()
    first = table(ID, column(2, "code", "text"), column(3, "big", "text"))
    second = table(ID, column(2, "code", "text"), column(3, "big", "text"), key=("code",))
    third = table(column(2, "code", "text"), column(3, "big", "text"), key=())
    lab.copy(first, *({"id": n, "code": f"c{n}", "big": f"b{n}"} for n in (1, 2, 3)))
    lab.write(
        Updated(first, {"id": 1, "code": "x", "big": UNCHANGED}),
        Altered(first, second),
        Updated(second, {"id": None, "code": "x", "big": UNCHANGED}),
        Deleted(second, {"code": "c3"}),
    )
    assert lab.table().schema().identifier_field_names() == {"code"}
    expected = [{"id": 2, "code": "c2", "big": "b2"}, {"id": None, "code": "x", "big": "b1"}]
    assert lab.read(order="code") == expected
    lab.write(Altered(second, third), Deleted(third, {"code": "c2", "big": "b2"}))
    assert lab.read(order="code") == [{"code": "x", "big": "b1"}]
    assert not any(field.required for field in lab.table().schema().fields)


@pytest.mark.parametrize("key", [("id",), ("id", "code")], ids=["one-of-two", "both"])
@pytest.mark.parametrize("copied", [False, True], ids=["altered", "copied-again"])
def test_names_swapped_with_the_key(altering: Make, key: tuple[str, ...], copied: bool) -> None:
    lab = altering()
    swapped = {"id": "code", "code": "id"}
    old = table(ID, column(2, "code", "text"), key=key)
    new = table(column(1, "code", "int4"), column(2, "id", "text"), key=tuple(swapped[name] for name in key))
    lab.copy(old, {"id": 1, "code": "c1"}, {"id": 2, "code": "c2"})
    if copied:
        lab.destination.drop_table_for_copy(old)
        lab.copy(new, {"code": 2, "id": "c2"}, {"code": 3, "id": "c3"})
    else:
        lab.write(Altered(old, new), Deleted(new, {"code": 1, "id": "c1"}), Inserted(new, {"code": 3, "id": "c3"}))
    assert lab.read() == [{"code": 2, "id": "c2"}, {"code": 3, "id": "c3"}]
    assert lab.table().schema().identifier_field_names() == {swapped[name] for name in key}
    assert {field.name for field in lab.table().schema().fields if field.required} == {swapped[name] for name in key}


def test_odd_names_and_nested_types(altering: Make) -> None:
    lab = altering()
    first = table(column(1, "Id", "int4"), column(2, "a.b", "int4"), column(3, 'q"d', "text"), key=("Id",))
    second = table(
        column(1, "the id", "int4"), column(2, "ü.ö", "int8"), column(3, 'Q"d', "text"), column(4, "list", "_int4"),
        column(5, "a.b", "jsonb", '{"a": "é"}'), column(6, "select", "int4", "6"), key=("the id",),
    )  # fmt: skip
    third = table(column(4, "list", "_int4"), column(6, "SELECT", "int8"), column(7, "l2", "_int4"), key=("SELECT",))
    lab.copy(first, {"Id": 1, "a.b": 2, 'q"d': "x"}, {"Id": 2, "a.b": 3, 'q"d': "y"})
    doc = '{"a": "é"}'
    lab.write(
        Altered(first, second),
        Inserted(second, {"the id": 3, "ü.ö": 4, 'Q"d': "z", "list": [1, None], "a.b": doc, "select": 7}),
        Updated(second, {"the id": 1, "ü.ö": 5, 'Q"d': UNCHANGED, "list": [], "a.b": UNCHANGED, "select": 8}),
    )
    assert lab.read(order="the id") == [
        {"the id": 1, "ü.ö": 5, 'Q"d': "x", "list": [], "a.b": doc, "select": 8},
        {"the id": 2, "ü.ö": 3, 'Q"d': "y", "list": None, "a.b": doc, "select": 6},
        {"the id": 3, "ü.ö": 4, 'Q"d': "z", "list": [1, None], "a.b": doc, "select": 7},
    ]
    # The key goes, and another column, renamed and widened, takes its place.
    lab.write(Altered(second, third), Updated(third, {"list": UNCHANGED, "SELECT": 7, "l2": [9]}))
    assert lab.read(order="SELECT") == [
        {"list": None, "SELECT": 6, "l2": None},
        {"list": [1, None], "SELECT": 7, "l2": [9]},
        {"list": [], "SELECT": 8, "l2": None},
    ]
    assert lab.table().schema().identifier_field_names() == {"SELECT"}


def test_soft_delete(altering: Make) -> None:
    lab = altering(mode="soft_delete")
    lab.copy(V1, *(_row(n) for n in (1, 2, 3)))
    new = table(column(1, "id", "int8"), column(5, "t", "text"), column(6, "s", "int4", missing="4"))
    lab.write(
        Deleted(V1, {"id": 1}),
        Altered(V1, new),
        Deleted(new, {"id": 2}),
        Truncated((new,)),
        Inserted(new, {"id": 4, "t": "x", "s": None}),
    )
    rows = [(row["id"], row["t"], row["s"], row["_headrace_deleted"]) for row in lab.read()]
    assert rows == [(1, "s1", 4, True), (2, "s2", 4, True), (3, "s3", 4, True), (4, "x", None, False)]


def test_a_change_log_keeps_every_column(altering: Make) -> None:
    lab = altering(mode="changelog")
    old = table(ID, column(2, "x", "int4"), column(3, "y", "text"))
    lab.copy(old, {"id": 1, "x": 1, "y": "copied"})
    # x is dropped, and what was y takes its name; z becomes a text, which no number can be read as.
    second = table(column(1, "id", "int8"), column(3, "x", "text"), column(4, "z", "int4", missing="5"))
    third = table(column(1, "id", "int8"), column(3, "x", "text"), column(4, "z", "text"))
    fourth = table(column(1, "id", "int8"), column(2, "x_2", "int4"), column(3, "x", "text"))
    assert lab.destination.follows(relation(second, third, rewritten=True))
    versions = [
        lab.write(Inserted(old, {"id": 2, "x": 2, "y": "b"})),
        lab.write(
            Updated(old, {"id": 3, "x": 2, "y": "b"}, old={"id": 2, "x": None, "y": None}),
            Altered(old, second),
            Inserted(second, {"id": 4, "x": "now text", "z": 9}),
        ),
        lab.write(Altered(second, third), Updated(third, {"id": 5, "x": "e", "z": "z"}, old={"id": 4})),
    ]
    lab.restart(maintenance={"enabled": False, "small_files": 2})
    lab.write(Truncated((third,)), Inserted(third, {"id": 6, "x": None, "z": None}))
    # The column is published again under its number, with the name that a kept one has by now.
    versions.append(lab.write(Altered(third, fourth), Inserted(fourth, {"id": 7, "x_2": 7, "x": "seven"})))
    names = ["id", "x", "x_2", "z", "z_4", "_headrace_op", "_headrace_schema_version"]
    _, v2, v3, v4 = map(int, versions)
    expected = [
        [None, None, None, None, None, "T", v3],
        [1, "copied", 1, None, None, "R", 0],
        [2, "b", 2, None, None, "I", 0],
        [3, "b", 2, None, None, "U", 0],
        [4, "now text", None, None, 9, "I", v2],
        [5, "e", None, "z", None, "U", v3],
        [6, None, None, None, None, "I", v3],
        [7, "seven", 7, None, None, "I", v4],
    ]

    def rows() -> list[list[Any]]:
        found = [[row[name] for name in names] for row in lab.read()]
        return sorted(found, key=lambda row: (row[0] is not None, row[0]))

    assert rows() == expected
    lab.destination.applied_lsn(fourth)
    lab.destination.maintain(T)
    assert rows() == expected
    befores = {row["id"]: row["_headrace_before"] for row in lab.read()}
    nothing = dict.fromkeys(("x", "x_2", "z", "z_4"))
    assert {key: value for key, value in befores.items() if value is not None} == {
        3: {"id": 2, **nothing},
        5: {"id": 4, **nothing},
    }


FOLLOWED: dict[str, tuple[ReplicatedTableSchema, bool]] = {
    "a default that is a list": (table(*V1.columns, column(6, "l", "_int4", "{1}")), False),
    "a list": (table(*V1.columns, column(6, "l", "_int4")), True),
    "no finite default": (table(*V1.columns, column(6, "l", "float8", "Infinity")), False),
    "a default that no date of Python is": (table(*V1.columns, column(6, "l", "date", "20000-01-01")), False),
    "a default that no date is": (table(*V1.columns, column(6, "l", "date", "infinity")), False),
    "a narrower type": (table(*V1.columns[:-1], column(5, "s", "int4")), False),
    "the partitions' column renamed": (table(ID, column(2, "aa", "int4"), *V1.columns[2:]), True),
    "the partitions' column widened": (table(ID, column(2, "a", "int8"), *V1.columns[2:]), False),
    "the partitions' column dropped": (table(ID, *V1.columns[2:]), False),
    "the sorted column dropped": (table(*V1.columns[:-1]), False),
    "another column dropped": (table(*V1.columns[:3], V1.columns[4]), True),
}


def test_what_cannot_be_followed(altering: Make) -> None:
    lab = altering(tables={"public.t": {"partition_by": ["bucket(2, a)"], "sort_by": ["-s"]}}, published=V1)
    lab.copy(V1, _row(1), _row(2))
    found = {what: lab.destination.follows(relation(V1, new)) for what, (new, _) in FOLLOWED.items()}
    assert found == {what: follows for what, (_, follows) in FOLLOWED.items()}
    assert not lab.destination.follows(relation(V1, V1, rewritten=True))
    # Settings name columns as they were called when the table was made.
    new = table(ID, column(2, "aa", "int4"), *V1.columns[2:4], column(5, "ss", "text"))
    rows = [{**_row(n), "aa": n, "ss": f"{n:02}"} for n in range(3, 23)]
    lab.write(Altered(V1, new), *(Inserted(new, {name.name: row[name.name] for name in new.columns}) for row in rows))
    lab.restart(new)
    lab.write(Updated(new, {"id": 1, "aa": 5, "f": None, "n": None, "ss": UNCHANGED}), Deleted(new, {"id": 2}))
    assert [row["ss"] for row in lab.read()][:3] == ["s1", "10", "11"]
    assert {len(task.file.partition) for task in lab.table().scan().plan_files()} == {1}
    lab.restart(new, maintenance={"enabled": False, "small_files": 2})
    lab.destination.applied_lsn(new)
    lab.destination.maintain(T)
    assert len(lab.read()) == 21


def test_a_table_made_before_columns_were_recorded(altering: Make) -> None:
    lab = altering()
    lab.copy(V1, _row(1))
    names = ", ".join(f"'headrace.{name}'" for name in ("columns", "table-id", "schema-version"))
    lab.sql(f"ALTER TABLE headrace.public.t UNSET TBLPROPERTIES ({names})")
    lab.restart()
    new = table(ID, column(2, "b", "int4"), column(6, "a", "int4", "3"))
    lab.write(Altered(V1, new), Inserted(new, {"id": 2, "b": 2, "a": 2}))
    assert lab.read() == [{"id": 1, "b": 10, "a": 3}, {"id": 2, "b": 2, "a": 2}]


def test_another_writer_comes_between(altering: Make) -> None:
    lab = altering()
    lab.copy(V1, _row(1))
    new = table(*V1.columns, column(6, "x", "int4", "1"))
    inner = lab.destination._opened.catalog.java
    # A user adds a column of his own after the files were written for the ids that were next.
    original, raced = inner.content_file, []

    def content_file(*arguments: Any) -> Any:
        if not raced:
            raced.append(True)
            lab.sql("ALTER TABLE headrace.public.t ADD COLUMN of_a_user string")
        return original(*arguments)

    inner.content_file = content_file  # type: ignore[method-assign]
    lab.write(Altered(V1, new), Inserted(new, {**_row(2), "x": 2}))
    assert [(row["id"], row["x"], row["of_a_user"]) for row in lab.read()] == [(1, 1, None), (2, 2, None)]


def test_comments(altering: Make) -> None:
    lab = altering()
    lab.copy(V1, _row(1))
    commented = table(*V1.columns[:-1], replace(V1.columns[-1], comment="of s"))
    commented = replace(commented, table=replace(commented.table, comment="of t"))
    lab.write(Altered(V1, commented))
    found = lab.table()
    assert (found.properties["comment"], found.schema().find_field("s").doc) == ("of t", "of s")
    lab.write(Altered(commented, V1))
    assert "comment" not in lab.table().properties
    assert lab.table().schema().find_field("s").doc is None
    assert lab.read()[0]["s"] == "s1"
