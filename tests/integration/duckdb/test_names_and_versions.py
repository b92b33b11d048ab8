"""What a batch does to names and columns, in a file and in a lake: in one transaction, all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duckdb_reading import DuckDBFile, LakeReader, canonical_rows, duckdb_settings, lake_settings
from headrace.config.table_mode import TableMode
from headrace.destinations.contract import DestinationContext
from headrace.destinations.duckdb import DuckDBDestination
from headrace.errors import ConfigError, DestinationConflict, DestinationError, DestinationRejected, TableSchemaChanged
from headrace.events import UNCHANGED, Relation
from headrace.lsn import Lsn
from headrace.schema import ReplicatedTableSchema, TableName
from headrace.stores import MemoryStore
from headrace.stores.records import DestinationTableMetadata
from headrace.table_state import State, TableState
from headrace.testing.canonical import canonical
from headrace.testing.example_tables import ORDERS, VISITS, altered_table, example_column, example_table
from headrace.testing.local_rows import (
    Altered,
    Deleted,
    Happening,
    Inserted,
    Truncated,
    Updated,
    batch_of,
    local_rows,
    transaction,
)

ID, NAME, NOTE = ORDERS.table.columns
A = example_table(21, "a", {"id": "int8"}, ("id",))
B = example_table(22, "b", {"id": "int8"}, ("id",))


class Place:
    """A file or a lake, opened as often as a test asks, and read back."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind, self.root = kind, root
        self.opened: list[DuckDBDestination] = []

    def open(
        self, *tables: ReplicatedTableSchema, store: MemoryStore | None = None, pipeline_id: int = 1, **settings: Any
    ) -> DuckDBDestination:
        self.close()
        if self.kind == "duckdb":
            destination = DuckDBDestination(duckdb_settings(self.root / "shop.duckdb", **settings))
        else:
            destination = DuckDBDestination(lake_settings(self.root, **settings))
        destination.startup(DestinationContext(pipeline_id, store or MemoryStore(), None, tables))
        destination.claim()
        self.opened.append(destination)
        return destination

    def close(self) -> None:
        while self.opened:
            self.opened.pop().shutdown()

    def rows(self, *name: str) -> list[Any]:
        reader = (
            DuckDBFile(self.root / "shop.duckdb")
            if self.kind == "duckdb"
            else LakeReader(f"sqlite:{self.root}/lake.sqlite")
        )
        return sorted(canonical_rows(reader.table(name)), key=str)


@pytest.fixture(params=["duckdb", "ducklake"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = Place(request.param, tmp_path)
    yield place
    place.close()


def copy(destination: DuckDBDestination, schema: ReplicatedTableSchema, *rows: dict[str, Any]) -> None:
    destination.write_table_rows(schema, local_rows(schema, rows), 0)


def change(destination: DuckDBDestination, lsn: int, *happenings: Happening) -> None:
    destination.write_events(batch_of(transaction(Lsn(lsn), *happenings), end=Lsn(lsn + 50)))


def named(schema: ReplicatedTableSchema, name: str, namespace: str = "public") -> ReplicatedTableSchema:
    return replace(schema, table=replace(schema.table, name=TableName(namespace, name)))


def order(key: int, name: str | None = "n", note: str | None = "x") -> dict[str, Any]:
    return {"id": key, "name": name, "note": note}


def sorted_rows(*rows: dict[str, Any]) -> list[Any]:
    return sorted((canonical(row) for row in rows), key=str)


def test_tables_exchange_their_names_in_one_batch(place: Place) -> None:
    destination = place.open(A, B)
    copy(destination, A, {"id": 1})
    copy(destination, B, {"id": 2})
    change(
        destination,
        100,
        Altered(A, named(A, "b")),
        Altered(B, named(B, "a")),
        Inserted(named(A, "b"), {"id": 11}),
        Inserted(named(B, "a"), {"id": 22}),
    )
    assert place.rows("public", "b") == sorted_rows({"id": 1}, {"id": 11})
    assert place.rows("public", "a") == sorted_rows({"id": 2}, {"id": 22})
    assert destination.applied_lsn(A) == destination.applied_lsn(B) == Lsn(150)


def test_a_name_in_other_letters(place: Place) -> None:
    destination = place.open(A)
    copy(destination, A, {"id": 1})
    change(destination, 100, Altered(A, named(A, "A")), Inserted(named(A, "A"), {"id": 2}))
    assert place.rows("public", "A") == [{"id": 1}, {"id": 2}]
    assert place.rows("headrace", "tables_1")[0]["table_name"] == "A"


def test_a_table_moves_to_another_schema(place: Place) -> None:
    destination = place.open(A)
    copy(destination, A, {"id": 1})
    moved = named(A, "a", 'Other "schema"')
    change(destination, 100, Inserted(A, {"id": 2}), Altered(A, moved), Deleted(moved, {"id": 1}))
    assert place.rows('Other "schema"', "a") == [{"id": 2}]
    change(destination, 200, Inserted(moved, {"id": 3}))
    assert place.rows('Other "schema"', "a") == [{"id": 2}, {"id": 3}]


def test_a_table_may_keep_its_name(place: Place) -> None:
    destination = place.open(A, on_table_rename="keep")
    copy(destination, A, {"id": 1})
    renamed = named(A, "renamed")
    change(destination, 100, Altered(A, renamed), Inserted(renamed, {"id": 2}))
    destination = place.open(renamed, on_table_rename="keep")
    assert destination.applied_lsn(renamed) == Lsn(150)
    change(destination, 200, Inserted(renamed, {"id": 3}))
    assert place.rows("public", "a") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_name_that_another_table_of_ours_still_has(place: Place) -> None:
    store = MemoryStore()
    destination = place.open(A, B, store=store)
    copy(destination, A, {"id": 1})
    copy(destination, B, {"id": 2})
    store.update_table_states({B.table.id: TableState(State.INIT)})
    with pytest.raises(DestinationConflict, match=r"public\.b.* still belongs to table public\.b") as raised:
        change(destination, 100, Altered(A, named(A, "b")), Inserted(named(A, "b"), {"id": 3}))
    assert raised.value.table_id == A.table.id
    assert place.rows("public", "a") == [{"id": 1}]
    assert destination.applied_lsn(A) is None


def test_a_table_that_was_dropped_and_created_is_replaced(place: Place) -> None:
    destination = place.open(A)
    copy(destination, A, {"id": 1})
    again = replace(A, table=replace(A.table, id=99))
    copy(destination, again, {"id": 5})
    assert place.rows("public", "a") == [{"id": 5}]
    assert destination.copied_parts(A) == frozenset()


def test_settings_of_a_table_that_left_keep_nobody_out(place: Place) -> None:
    destination = place.open(A, ORDERS, tables={"public.a": {"name": "lake.a"}})
    copy(destination, A, {"id": 1})
    destination.drop_table(A)
    copy(destination, B, {"id": 2})
    copy(destination, A, {"id": 3})
    assert (place.rows("public", "b"), place.rows("lake", "a")) == ([{"id": 2}], [{"id": 3}])


def test_what_others_made_is_left_alone(place: Place) -> None:
    destination = place.open(A, pipeline_id=7)
    copy(destination, A, {"id": 1})
    destination = place.open(A, pipeline_id=1)
    with pytest.raises(DestinationRejected, match=r"public\.a exists and belongs to pipeline 7") as raised:
        copy(destination, A, {"id": 2})
    assert 'destination.tables."public.a".name' in raised.value.hint
    copy(destination, B, {"id": 3})
    assert place.rows("public", "a") == [{"id": 1}]
    assert place.rows("headrace", "tables_1")[0]["table_name"] == "b"


def test_a_table_that_somebody_dropped_is_told(place: Place) -> None:
    store = MemoryStore()
    store.store_destination_metadata(A.table.id, DestinationTableMetadata("public.a", Lsn(0), A.mask))
    destination = place.open(A, B, store=store)
    copy(destination, B, {"id": 1})
    with pytest.raises(DestinationRejected, match=r"the table for public\.a is missing") as raised:
        change(destination, 100, Inserted(B, {"id": 2}), Inserted(A, {"id": 1}))
    assert raised.value.table_id == A.table.id
    assert place.rows("public", "b") == [{"id": 1}]


def test_the_table_that_fails_is_named_and_nothing_is_written(place: Place) -> None:
    destination = place.open(A, ORDERS)
    copy(destination, A, {"id": 1})
    copy(destination, ORDERS, order(1))
    change(destination, 50, Inserted(A, {"id": 2}))
    # A large value that stayed as it was, of a row that is not there
    with pytest.raises(DestinationError, match="lacks 1 rows") as raised:
        change(
            destination,
            100,
            Inserted(A, {"id": 3}),
            Updated(ORDERS, {"id": 77, "name": "n", "note": UNCHANGED}),
        )
    assert raised.value.table_id == ORDERS.table.id
    assert "REPLICA IDENTITY FULL" in raised.value.hint
    assert place.rows("public", "a") == [{"id": 1}, {"id": 2}]
    assert destination.applied_lsn(A) == Lsn(100)


def test_many_versions_in_one_batch(place: Place) -> None:
    """Rows of each version end as the source would show them at the end."""
    added = altered_table(
        ORDERS, ID, NAME, NOTE, example_column("more", 4, "int4", "7"), example_column("at", 5, "date", "2024-02-29")
    )
    swapped = altered_table(added, ID, replace(NAME, name="note"), replace(NOTE, name="name"), *added.table.columns[3:])
    wider = altered_table(
        swapped, *swapped.table.columns[:3], example_column("more", 4, "int8"), example_column("new", 6, "text", "it's")
    )
    destination = place.open(ORDERS)
    copy(destination, ORDERS, order(1), order(2), order(3))
    full = {"more": 1, "at": None}
    change(
        destination,
        100,
        Inserted(ORDERS, order(4)),
        Deleted(ORDERS, {"id": 1}),
        Altered(ORDERS, added),
        Inserted(added, {**order(5), **full}),
        Updated(added, {**order(4, "again"), **full}),
        Altered(added, swapped),
        Updated(swapped, {"id": 2, "note": "was name", "name": "was note", **full}),
        Altered(swapped, wider),
        Inserted(wider, {"id": 6, "note": "a", "name": "b", "more": 5_000_000_000, "new": None}),
    )
    assert place.rows("public", "orders") == sorted_rows(
        {"id": 2, "note": "was name", "name": "was note", "more": 1, "new": "it's"},
        {"id": 3, "note": "n", "name": "x", "more": 7, "new": "it's"},
        {"id": 4, "note": "again", "name": "x", "more": 1, "new": "it's"},
        {"id": 5, "note": "n", "name": "x", "more": 1, "new": "it's"},
        {"id": 6, "note": "a", "name": "b", "more": 5_000_000_000, "new": None},
    )


def test_a_key_that_is_dropped_in_the_batch(place: Place) -> None:
    other = altered_table(ORDERS, replace(NAME, key_position=1), NOTE, identity_attnums=(2,))
    destination = place.open(ORDERS)
    copy(destination, ORDERS, *(order(key, f"n{key}") for key in range(4)))
    change(
        destination,
        100,
        Deleted(ORDERS, {"id": 1}),
        Updated(ORDERS, order(2, "n2", "changed")),
        Inserted(ORDERS, order(9, "n9")),
        Altered(ORDERS, other),
        Updated(other, {"name": "n0", "note": "later"}),
        Deleted(other, {"name": "n9"}),
    )
    expected = [{"name": "n0", "note": "later"}, {"name": "n2", "note": "changed"}, {"name": "n3", "note": "x"}]
    assert place.rows("public", "orders") == expected
    change(destination, 200, Deleted(other, {"name": "n3"}))
    assert place.rows("public", "orders") == expected[:2]


def test_equal_rows_and_another_version(place: Place) -> None:
    page, _ = VISITS.table.columns
    without = replace(altered_table(VISITS, page), table=replace(VISITS.table, columns=(page,), identity_attnums=(1,)))
    destination = place.open(VISITS)
    copy(destination, VISITS, *[{"page": "a", "seconds": s} for s in (1, 1, 2, None)])
    change(
        destination,
        100,
        Deleted(VISITS, {"page": "a", "seconds": 1}),
        Inserted(VISITS, {"page": "b", "seconds": 3}),
        Altered(VISITS, without),
        Deleted(without, {"page": "a"}),
    )
    assert place.rows("public", "visits") == [{"page": "a"}, {"page": "a"}, {"page": "b"}]


def test_a_log_through_versions(place: Place) -> None:
    retyped = altered_table(ORDERS, ID, example_column("name", 2, "int4"), replace(NOTE, name="remark"))
    destination = place.open(ORDERS, mode=TableMode.CHANGELOG.value)
    copy(destination, ORDERS, order(1))
    assert destination.follows(Relation(Lsn(100), Lsn(100), ORDERS, retyped, rewritten=True))
    change(
        destination,
        100,
        Updated(ORDERS, order(2, "before"), old={"id": 1}),
        Altered(ORDERS, retyped),
        Inserted(retyped, {"id": 3, "name": 33, "remark": "r"}),
        Truncated((retyped,)),
    )
    rows = place.rows("public", "orders")
    told = {row["_headrace_op"]: row for row in rows}
    assert {op: (row["id"], row["name_2"], row["name"], row["remark"]) for op, row in told.items()} == {
        "R": (1, "n", None, "x"), "U": (2, "before", None, "x"), "I": (3, None, 33, "r"), "T": (None, None, None, None)
    }  # fmt: skip
    assert told["U"]["_headrace_before"] == {"id": 1, "name_2": None, "name": None, "remark": None}
    assert [told[op]["_headrace_schema_version"] for op in "RUIT"] == [0, 0, 100, 100]


@pytest.mark.parametrize("namespace", ["public", "attic"])
def test_a_log_whose_source_is_renamed_and_copied_again(place: Place, namespace: str) -> None:
    destination = place.open(ORDERS, mode=TableMode.CHANGELOG.value)
    copy(destination, ORDERS, order(1))
    change(destination, 100, Inserted(ORDERS, order(2)))
    moved = named(ORDERS, "moved", namespace)
    destination.drop_table_for_copy(moved)
    copy(destination, moved, order(3))
    rows = place.rows(namespace, "moved")
    assert sorted((row["_headrace_op"], row["id"]) for row in rows if row["id"]) == [("I", 2), ("R", 1), ("R", 3)]
    change(destination, 200, Deleted(moved, {"id": 3}))
    assert {row["_headrace_op"] for row in place.rows(namespace, "moved")} == set("RITD")


def test_a_log_that_was_dropped_by_hand_is_begun_anew(place: Place) -> None:
    destination = place.open(ORDERS, mode=TableMode.CHANGELOG.value)
    copy(destination, ORDERS, order(1))
    with destination._opened.database.transaction("drop it") as session:
        session.run(f"DROP TABLE {destination._opened.tables.sql(('public', 'orders'))}")
    destination.drop_table_for_copy(ORDERS)
    copy(destination, ORDERS, order(2))
    assert [(row["_headrace_op"], row["id"]) for row in place.rows("public", "orders")] == [("R", 2)]


def test_readers_see_the_old_rows_until_the_new_copy_is_there(place: Place) -> None:
    destination = place.open(ORDERS)
    copy(destination, ORDERS, order(1))
    change(destination, 100, Inserted(ORDERS, order(2)))
    destination.drop_table_for_copy(ORDERS)
    assert destination.applied_lsn(ORDERS) is None
    assert place.rows("public", "orders") == sorted_rows(order(1), order(2))
    other = altered_table(ORDERS, ID, example_column("name", 2, "int4"))
    copy(destination, other, {"id": 5, "name": 55})
    assert place.rows("public", "orders") == [{"id": 5, "name": 55}]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"namespace": "headrace"}, "in the schema headrace, which Headrace keeps"),
        ({"namespace": "a.b"}, "names of two parts"),
        ({"tables": {"public.a": {"name": "x.y.z"}}}, "names of two parts"),
    ],
)
def test_names_that_cannot_be(place: Place, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        place.open(A, **settings)
    assert raised.value.hint


@pytest.mark.parametrize("mode", list(TableMode))
def test_columns_that_differ_in_case_only(place: Place, mode: TableMode) -> None:
    table = example_table(30, "cases", {"id": "int8", "name": "text", "Name": "text"}, ("id",))
    swapped = altered_table(
        table,
        table.table.columns[0],
        replace(table.table.columns[1], name="NAME"),
        replace(table.table.columns[2], name="other"),
    )
    destination = place.open(table, mode=mode.value)
    copy(destination, table, {"id": 1, "name": "a", "Name": "A"})
    change(
        destination,
        100,
        Updated(table, {"id": 2, "name": "b", "Name": "B"}, old={"id": 1}),
        Inserted(table, {"id": 3, "name": "c", "Name": "C"}),
    )
    live = [row for row in place.rows("public", "cases") if not row.get("_headrace_deleted")]
    told = {(row["id"], row["name"], row["Name_3"]) for row in live if row.get("_headrace_op") != "R"}
    assert told == {(2, "b", "B"), (3, "c", "C")}
    assert destination.follows(Relation(Lsn(200), Lsn(200), table, swapped))
    change(destination, 200, Altered(table, swapped), Deleted(swapped, {"id": 2}))
    live = [row for row in place.rows("public", "cases") if not row.get("_headrace_deleted")]
    kept = {(row["id"], row["NAME"], row["other"]) for row in live if row.get("_headrace_op") in (None, "I")}
    assert kept == {(3, "c", "C")}


def test_files_of_rows_are_gone_after_use(tmp_path: Path) -> None:
    place = Place("duckdb", tmp_path)
    destination = place.open(A)
    (left,) = tmp_path.glob("headrace-staging-1-*")
    big = example_table(40, "big", {"id": "int8", "text": "text"}, ("id",))
    copy(destination, big, *({"id": key, "text": "x" * 10_000} for key in range(1_000)))
    assert len(place.rows("public", "big")) == 1_000
    assert list(left.iterdir()) == []
    # Those of a run that was killed go at the next start
    killed = left.with_name(f"{left.name.rpartition('-')[0]}-killed")
    killed.mkdir()
    place.open(A)
    assert not killed.exists()
    # And not those of another database, which the same pipeline writes to as well
    (left,) = tmp_path.glob("headrace-staging-1-*")
    for settings in (duckdb_settings(tmp_path / "other.duckdb"), lake_settings(tmp_path, staging=str(tmp_path))):
        other = DuckDBDestination(settings)
        other.startup(DestinationContext(1, MemoryStore(), None, (A,)))
        other.claim()
        other.shutdown()
    assert [path.name for path in tmp_path.glob("headrace-staging-1-*")] == [left.name]
    place.close()


def test_a_column_that_came_with_a_default_and_became_wider(place: Place) -> None:
    """As Postgres shows it: the digits that the value has in the wider type."""
    columns = ORDERS.table.columns
    came = altered_table(ORDERS, *columns, example_column("ratio", 9, "float4", missing="0.1"))
    wider = altered_table(ORDERS, *columns, example_column("ratio", 9, "float8"))
    destination = place.open(ORDERS)
    copy(destination, ORDERS, order(1))
    happened = (Inserted(ORDERS, order(2)), Altered(ORDERS, came), Altered(came, wider))
    change(destination, 100, *happened, Inserted(wider, {**order(3), "ratio": 0.1}))
    destination.shutdown()
    single = 0.10000000149011612
    expected = [{**order(1), "ratio": single}, {**order(2), "ratio": single}, {**order(3), "ratio": 0.1}]
    assert place.rows("public", "orders") == sorted_rows(*expected)


def test_a_key_that_came_and_went_within_a_batch_has_the_table_copied_again(place: Place) -> None:
    code = replace(example_column("code", 9), nullable=False, key_position=1)
    by_code = altered_table(ORDERS, replace(ID, key_position=None), NAME, NOTE, code, identity_attnums=(9,))
    destination = place.open(ORDERS)
    copy(destination, ORDERS, order(1))
    with pytest.raises(TableSchemaChanged, match="came and went within one batch") as raised:
        change(
            destination,
            100,
            Altered(ORDERS, by_code),
            Updated(by_code, {**order(1, "new"), "code": "c"}),
            Altered(by_code, ORDERS),
        )
    assert raised.value.table_id == ORDERS.table.id  # type: ignore[attr-defined]
    # Which is not in the way of what comes then.
    destination.drop_table_for_copy(ORDERS)
    copy(destination, ORDERS, order(1, "new"))
    assert place.rows("public", "orders") == sorted_rows(order(1, "new"))
