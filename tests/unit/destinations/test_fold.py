"""fold: each rule by name. Random histories are in tests/property."""

from __future__ import annotations

import datetime as dt
import pickle
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from folding import Change, change_table, delete, delete_row, insert, transactions, update
from headrace.destinations.batch import Changes
from headrace.destinations.fold import fold_key, fold_table, folded, folded_schema
from headrace.errors import ProtocolError
from headrace.schema import (
    Column,
    PgType,
    ReplicaIdentity,
    ReplicatedTableSchema,
    ReplicationMask,
    TableName,
    TableSchema,
)

ROW = pa.struct([pa.field("id", pa.int64()), pa.field("n", pa.int32()), pa.field("doc", pa.string())])
DOC = 2


def fold(
    *changes: Change, key: tuple[str, ...] | None = ("id",), row_type: pa.StructType = ROW
) -> list[dict[str, Any]]:
    """Fold changes of one transaction each; what comes out, by row."""
    table = change_table(row_type, transactions(*([change] for change in changes)))
    rows = fold_table(table, key).to_pylist()
    return sorted(rows, key=lambda change: repr(change["row"]))


def short(folded_changes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """(op, row's values …)."""
    return [(change["op"], *change["row"].values()) for change in folded_changes]


# What becomes of one key.


def test_insert_is_an_append() -> None:
    assert short(fold(insert(id=1, n=5, doc="a"))) == [("I", 1, 5, "a")]


def test_insert_then_update_is_an_append_of_the_last_state() -> None:
    changes = insert(id=1, n=5, doc="a"), update({"id": 1, "n": 6, "doc": "b"})

    assert short(fold(*changes)) == [("I", 1, 6, "b")]


def test_update_is_an_upsert() -> None:
    assert short(fold(update({"id": 1, "n": 5, "doc": "a"}))) == [("U", 1, 5, "a")]


def test_delete_has_the_key_only() -> None:
    assert short(fold(delete(id=1))) == [("D", 1, None, None)]
    assert short(fold(delete_row(id=1, n=5, doc="a"))) == [("D", 1, None, None)]


def test_update_then_delete_is_a_delete() -> None:
    assert short(fold(update({"id": 1, "n": 5, "doc": "a"}), delete(id=1))) == [("D", 1, None, None)]


def test_insert_then_delete_is_nothing() -> None:
    assert fold(insert(id=1, n=5, doc="a"), update({"id": 1, "n": 6, "doc": "a"}), delete(id=1)) == []


def test_delete_then_insert_is_an_upsert() -> None:
    assert short(fold(delete(id=1), insert(id=1, n=5, doc="a"))) == [("U", 1, 5, "a")]


def test_delete_insert_delete_is_a_delete() -> None:
    assert short(fold(delete(id=1), insert(id=1, n=5, doc="a"), delete(id=1))) == [("D", 1, None, None)]


def test_null_is_a_value_and_replaces_one() -> None:
    assert short(fold(insert(id=1, n=5, doc="a"), update({"id": 1, "n": None, "doc": None}))) == [("I", 1, None, None)]


def test_order_is_that_of_commits_and_not_of_rows() -> None:
    in_order = transactions(
        [insert(id=1, n=1, doc="a"), update({"id": 1, "n": 2, "doc": "a"})], [update({"id": 1, "n": 3, "doc": "a"})]
    )

    for changes in (in_order[::-1], [in_order[1], in_order[2], in_order[0]]):
        assert short(fold_table(change_table(ROW, changes), ("id",)).to_pylist()) == [("I", 1, 3, "a")]


def test_order_of_several_keys_in_rows_of_any_order() -> None:
    in_order = transactions(*([update({"id": n // 4, "n": n, "doc": "a"})] for n in range(6)))

    for changes in (in_order[::-1], [in_order[n] for n in (5, 0, 4, 1, 3, 2)]):
        rows = fold_table(change_table(ROW, changes), ("id",)).to_pylist()
        assert sorted(short(rows)) == [("U", 0, 3, "a"), ("U", 1, 5, "a")]


def test_place_is_that_of_the_deciding_change() -> None:
    changes = transactions(
        [insert(id=1, n=1, doc="a"), insert(id=2, n=1, doc="a")],
        [insert(id=3, n=1, doc="a"), update({"id": 1, "n": 2, "doc": "a"}), delete(id=4)],
    )

    rows = fold_table(change_table(ROW, changes), ("id",)).to_pylist()

    places = {row["row"]["id"]: (row["commit_lsn"], row["tx_ordinal"], row["xid"]) for row in rows}
    assert places == {1: (200, 1, 207), 2: (100, 1, 107), 3: (200, 0, 207), 4: (200, 2, 207)}
    times = {row["row"]["id"]: row["commit_time"] for row in rows}
    assert times[4] == dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=200)


# Unchanged TOAST.


def test_unchanged_value_is_taken_from_an_earlier_change() -> None:
    changes = (
        update({"id": 1, "n": 1, "doc": "long"}),
        update({"id": 1, "n": 2}, unchanged=["doc"]),
        update({"id": 1, "n": 3}, unchanged=["doc"]),
    )

    [row] = fold(*changes)

    assert short([row]) == [("U", 1, 3, "long")]
    assert row["unchanged"] is None


def test_unchanged_null_of_an_earlier_change_is_null_and_known() -> None:
    [row] = fold(insert(id=1, n=1, doc=None), update({"id": 1, "n": 2}, unchanged=["doc"]))

    assert (row["op"], row["unchanged"]) == ("I", None)


def test_unchanged_value_that_nobody_sent_stays_unchanged() -> None:
    [row] = fold(update({"id": 1, "n": 1}, unchanged=["doc"]), update({"id": 1, "n": 2}, unchanged=["doc"]))

    assert (row["op"], row["unchanged"], row["origin"]) == ("U", [DOC], None)
    assert row["row"] == {"id": 1, "n": 2, "doc": None}


def test_unchanged_value_comes_from_the_new_row_of_a_key_not_from_the_deleted_one() -> None:
    changes = (
        update({"id": 1, "n": 1, "doc": "old"}),
        delete(id=1),
        insert(id=1, n=2, doc="new"),
        update({"id": 1, "n": 3}, unchanged=["doc"]),
    )

    assert short(fold(*changes)) == [("U", 1, 3, "new")]


def test_chain_of_many_updates() -> None:
    changes = [update({"id": 1, "n": n}, unchanged=["doc"]) for n in range(1000)]

    assert short(fold(insert(id=1, n=0, doc="long"), *changes)) == [("I", 1, 999, "long")]
    assert fold(*changes)[0]["unchanged"] == [DOC]


def test_columns_are_resolved_each_for_itself() -> None:
    row_type = pa.struct([pa.field(name, pa.string()) for name in ("id", "a", "b", "c")])
    changes = (
        update({"id": "k", "a": "a1", "b": None, "c": None}, unchanged=["c", "b"]),
        update({"id": "k", "b": "b2"}, unchanged=["a", "c"]),
    )

    [row] = fold(*changes, row_type=row_type)

    assert row["row"] == {"id": "k", "a": "a1", "b": "b2", "c": None}
    assert row["unchanged"] == [3]


def test_unchanged_columns_are_listed_per_row_in_table_order() -> None:
    row_type = pa.struct([pa.field(name, pa.string()) for name in ("id", "a", "b", "c")])
    changes = (
        update({"id": "j", "a": "a", "b": "b"}, unchanged=["c"]),
        update({"id": "k", "b": "b"}, unchanged=["c", "a"]),
        update({"id": "l"}, unchanged=["b", "c", "a"]),
        update({"id": "m", "a": "a", "b": "b", "c": "c"}),
    )

    rows = fold(*changes, row_type=row_type)

    assert [row["unchanged"] for row in rows] == [[3], [1, 3], [1, 2, 3], None]


# Key changes.


def test_key_change_deletes_the_old_key_and_upserts_the_new_one() -> None:
    assert short(fold(update({"id": 2, "n": 5, "doc": "a"}, old_key={"id": 1}))) == [
        ("D", 1, None, None),
        ("U", 2, 5, "a"),
    ]


def test_key_change_under_full_identity_is_told_by_the_values() -> None:
    old = {"id": 1, "n": 4, "doc": "a"}

    assert short(fold(update({"id": 1, "n": 5, "doc": "a"}, old_row=old))) == [("U", 1, 5, "a")]
    assert short(fold(update({"id": 2, "n": 5, "doc": "a"}, old_row=old))) == [("D", 1, None, None), ("U", 2, 5, "a")]


def test_old_key_equal_to_the_new_one_is_a_plain_update() -> None:
    [row] = fold(update({"id": 1, "n": 5}, unchanged=["doc"], old_key={"id": 1}))

    assert (row["op"], row["unchanged"], row["origin"]) == ("U", [DOC], None)


def test_key_change_names_the_origin_of_what_is_unchanged() -> None:
    deleted, row = fold(update({"id": 2, "n": 5}, unchanged=["doc"], old_key={"id": 1}))

    assert (deleted["op"], deleted["origin"], deleted["unchanged"]) == ("D", None, None)
    assert (row["op"], row["origin"], row["unchanged"]) == ("U", {"id": 1}, [DOC])


def test_key_change_carries_a_value_that_was_sent() -> None:
    changes = update({"id": 1, "n": 1, "doc": "long"}), update({"id": 2, "n": 5}, unchanged=["doc"], old_key={"id": 1})

    assert short(fold(*changes)) == [("D", 1, None, None), ("U", 2, 5, "long")]


def test_delete_by_a_key_change_has_no_values_whatever_other_rows_lack() -> None:
    changes = update({"id": 2, "n": 5, "doc": "a"}, old_key={"id": 1}), update({"id": 3, "n": 5}, unchanged=["doc"])

    assert short(fold(*changes)) == [("D", 1, None, None), ("U", 2, 5, "a"), ("U", 3, 5, None)]


def test_chain_of_key_changes() -> None:
    chain = (
        update({"id": 2, "n": 5}, unchanged=["doc"], old_key={"id": 1}),
        update({"id": 2, "n": 6}, unchanged=["doc"]),
        update({"id": 3, "n": 7}, unchanged=["doc"], old_key={"id": 2}),
    )

    deleted, row = fold(*chain)
    assert (deleted["op"], deleted["row"]["id"]) == ("D", 1)
    assert (row["op"], row["row"]["id"], row["origin"], row["unchanged"]) == ("U", 3, {"id": 1}, [DOC])

    # An inserted row carries its value along; the keys it passed are not mentioned.
    assert short(fold(insert(id=1, n=1, doc="long"), *chain)) == [("U", 3, 7, "long")]


def test_key_change_and_back_keeps_the_value_in_place() -> None:
    changes = (
        update({"id": 2, "n": 5}, unchanged=["doc"], old_key={"id": 1}),
        update({"id": 1, "n": 6}, unchanged=["doc"], old_key={"id": 2}),
    )

    [row] = fold(*changes)

    assert (row["op"], row["row"]["id"], row["origin"], row["unchanged"]) == ("U", 1, None, [DOC])


def test_swap_of_keys() -> None:
    changes = (
        update({"id": 9, "n": 1}, unchanged=["doc"], old_key={"id": 1}),
        update({"id": 1, "n": 2}, unchanged=["doc"], old_key={"id": 2}),
        update({"id": 2, "n": 1}, unchanged=["doc"], old_key={"id": 9}),
    )

    one, two = fold(*changes)

    assert (one["op"], one["row"]["id"], one["row"]["n"], one["origin"]) == ("U", 1, 2, {"id": 2})
    assert (two["op"], two["row"]["id"], two["row"]["n"], two["origin"]) == ("U", 2, 1, {"id": 1})


def test_key_change_into_a_key_deleted_before() -> None:
    changes = delete(id=2), update({"id": 2, "n": 5, "doc": "a"}, old_key={"id": 1})

    assert short(fold(*changes)) == [("D", 1, None, None), ("U", 2, 5, "a")]


def test_row_that_takes_values_from_another_key_is_no_append() -> None:
    changes = (
        insert(id=2, n=1, doc="a"),
        update({"id": 3, "n": 1, "doc": "a"}, old_key={"id": 2}),
        update({"id": 2, "n": 5}, unchanged=["doc"], old_key={"id": 1}),
    )

    rows = {row["row"]["id"]: row for row in fold(*changes)}

    assert (rows[2]["op"], rows[2]["origin"], rows[2]["unchanged"]) == ("U", {"id": 1}, [DOC])


def test_key_change_then_delete_deletes_the_first_key() -> None:
    changes = update({"id": 2, "n": 5, "doc": "a"}, old_key={"id": 1}), delete(id=2)

    assert short(fold(*changes)) == [("D", 1, None, None)]


def test_swap_under_a_deferrable_key() -> None:
    one, two = {"id": 1, "n": 10, "doc": "one"}, {"id": 2, "n": 20, "doc": "two"}
    changes = transactions([update({**one, "id": 2}, old_row=one), update({**two, "id": 1}, old_row=two)])

    rows = fold_table(change_table(ROW, changes), ("id",)).to_pylist()

    assert sorted(short(rows)) == [("U", 1, 20, "two"), ("U", 2, 10, "one")]


# Keys of all kinds.

KEYS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int16(), -1, 1),
    (pa.bool_(), True, False),
    (pa.string(), "", " "),
    (pa.string(), str(uuid.UUID(int=1)), str(uuid.UUID(int=2))),
    (pa.binary(), b"", b"\0"),
    (pa.decimal128(38, 4), Decimal("1.0000"), Decimal("-1.0000")),
    (pa.date32(), dt.date(2020, 1, 1), dt.date(1969, 1, 1)),
    (pa.timestamp("us"), dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    (pa.float64(), 0.0, 1.5),
    (pa.list_(pa.int32()), [1, 2], [12]),
]


@pytest.mark.parametrize(("kind", "one", "other"), KEYS, ids=[str(kind) for kind, _, _ in KEYS])
def test_key_of_type(kind: pa.DataType, one: Any, other: Any) -> None:
    row_type = pa.struct([pa.field("n", pa.int32()), pa.field("k", kind)])
    changes = (
        insert(n=1, k=one),
        update({"n": 2, "k": other}),
        update({"n": 3, "k": one}),
        update({"n": 4, "k": other}, old_key={"k": other}),
    )

    rows = fold(*changes, key=("k",), row_type=row_type)

    assert sorted((row["op"], row["row"]["n"], row["row"]["k"]) for row in rows) == [("I", 3, one), ("U", 4, other)]


def test_composite_key_is_all_of_its_columns_in_its_own_order() -> None:
    row_type = pa.struct([pa.field(name, pa.string()) for name in ("a", "v", "b")])
    changes = (
        insert(a="x", b="yz", v="1"),
        insert(a="xy", b="z", v="2"),
        update({"a": "x", "b": "yz", "v": "3"}),
        update({"a": "q", "b": "yz", "v": None}, unchanged=["v"], old_key={"a": "p", "b": "yz"}),
    )

    rows = fold(*changes, key=("b", "a"), row_type=row_type)

    assert short(rows) == [("D", "p", None, "yz"), ("U", "q", None, "yz"), ("I", "x", "3", "yz"), ("I", "xy", "2", "z")]
    assert list(rows[1]["origin"].items()) == [("b", "yz"), ("a", "p")]


def test_negative_zero_is_the_key_zero() -> None:
    row_type = pa.struct([pa.field("k", pa.float64()), pa.field("n", pa.int32())])

    [row] = fold(update({"k": -0.0, "n": 1}, old_key={"k": 0.0}), key=("k",), row_type=row_type)

    assert (row["op"], row["row"]["n"], str(row["row"]["k"])) == ("U", 1, "-0.0")


def test_toasted_key_is_taken_from_the_old_key() -> None:
    row_type = pa.struct([pa.field("k", pa.string()), pa.field("n", pa.int32())])
    changes = insert(k="long", n=1), update({"n": 2}, unchanged=["k"], old_key={"k": "long"})

    [row] = fold(*changes, key=("k",), row_type=row_type)

    assert (row["op"], row["row"], row["unchanged"]) == ("I", {"k": "long", "n": 2}, None)


def test_toasted_key_without_an_old_key_is_refused() -> None:
    with pytest.raises(ProtocolError, match="without a value of its key") as caught:
        fold(update({"n": 2, "doc": "a"}, unchanged=["id"]))
    assert "minor version" in caught.value.hint


# Pure inserts.


def test_pure_inserts_pass_without_a_copy() -> None:
    changes = change_table(ROW, transactions([insert(id=n, n=1, doc="a") for n in range(5)]))

    result = fold_table(changes, ("id",))

    assert result["op"].to_pylist() == ["I"] * 5
    assert result["row"].chunk(0).field(0).buffers()[1].address == changes["row"].chunk(0).field(0).buffers()[1].address


# Tables without a key.


def counts(*changes: Change) -> list[tuple[Any, ...]]:
    return [(row["op"], row["count"], *row["row"].values()) for row in fold(*changes, key=None)]


def test_delete_takes_one_of_several_equal_rows() -> None:
    assert counts(delete_row(id=1, n=1, doc="a")) == [("D", 1, 1, 1, "a")]


def test_deletes_of_equal_rows_are_counted() -> None:
    assert counts(*[delete_row(id=1, n=None, doc="a")] * 3) == [("D", 3, 1, None, "a")]


def test_equal_inserts_are_all_appended() -> None:
    changes = [insert(id=1, n=1, doc="a")] * 3

    assert counts(*changes) == [("I", 1, 1, 1, "a")] * 3
    assert counts(*changes, delete_row(id=1, n=1, doc="a")) == [("I", 1, 1, 1, "a")] * 2


def test_update_without_key_takes_away_and_appends() -> None:
    change = update({"id": 1, "n": 2, "doc": "a"}, old_row={"id": 1, "n": 1, "doc": "a"})

    assert counts(change) == [("D", 1, 1, 1, "a"), ("I", 1, 1, 2, "a")]


def test_updates_without_key_that_come_back_are_nothing() -> None:
    one, two = {"id": 1, "n": 1, "doc": "a"}, {"id": 1, "n": 2, "doc": "a"}

    assert counts(update(two, old_row=one), update(one, old_row=two)) == []


def test_appends_have_the_places_of_the_last_inserts() -> None:
    row = {"id": 1, "n": 1, "doc": "a"}
    rows = fold(insert(**row), insert(**row), delete_row(**row), insert(**row), key=None)

    assert [change["commit_lsn"] for change in rows] == [200, 400]


def test_insert_only_table_is_appended() -> None:
    assert counts(insert(id=None, n=1, doc="a"), insert(id=None, n=1, doc="a")) == [("I", 1, None, 1, "a")] * 2


@pytest.mark.parametrize("change", [delete(id=1), update({"id": 1, "n": 1, "doc": "a"})], ids=["delete", "update"])
def test_change_without_key_and_old_row_is_refused(change: Change) -> None:
    with pytest.raises(ProtocolError, match="without its old row") as caught:
        fold(change, insert(id=1, n=1, doc="a"), key=None)
    assert "REPLICA IDENTITY FULL" in caught.value.hint


# Shapes.


@pytest.mark.parametrize("key", [("id",), None], ids=["key", "no key"])
def test_nothing_gives_nothing(key: tuple[str, ...] | None) -> None:
    result = fold_table(change_table(ROW, []), key)

    assert result.num_rows == 0
    assert result.schema == folded_schema(ROW, key)


def test_schema() -> None:
    names = ["op", "commit_lsn", "tx_ordinal", "xid", "commit_time", "count", "unchanged"]

    assert folded_schema(ROW, ("n", "id")).names == [*names, "origin", "row"]
    assert folded_schema(ROW, ("n", "id")).field("origin").type == pa.struct([ROW.field("n"), ROW.field("id")])
    assert folded_schema(ROW, None).names == [*names, "row"]


# Which columns are the key.


def schema_of(
    identity: ReplicaIdentity, attnums: tuple[int, ...], key: tuple[int, ...] = (), sent: tuple[int, ...] = (1, 2, 3)
) -> ReplicatedTableSchema:
    text = PgType(25, "text")
    columns = tuple(
        Column(name, n, text, key_position=key.index(n) + 1 if n in key else None)
        for n, name in enumerate(("a", "b", "c"), start=1)
    )
    table = TableSchema(1, TableName("public", "t"), columns, identity, attnums)
    return ReplicatedTableSchema(table, ReplicationMask(frozenset(sent)))


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        pytest.param(schema_of(ReplicaIdentity.DEFAULT, (1, 2), (2, 1)), ("b", "a"), id="primary key, in its order"),
        pytest.param(schema_of(ReplicaIdentity.FULL, (1, 2, 3), (2,)), ("b",), id="full with a primary key"),
        pytest.param(schema_of(ReplicaIdentity.FULL, (1, 2, 3)), None, id="full without a key"),
        pytest.param(schema_of(ReplicaIdentity.INDEX, (2, 3), (1,)), ("b", "c"), id="index apart from the key"),
        pytest.param(schema_of(ReplicaIdentity.INDEX, (2,)), ("b",), id="index without a key"),
        pytest.param(schema_of(ReplicaIdentity.INDEX, (2, 3), sent=(1, 2)), None, id="index not wholly replicated"),
        pytest.param(schema_of(ReplicaIdentity.DEFAULT, (1, 2), (1, 2), (1, 3)), None, id="key not wholly replicated"),
        pytest.param(schema_of(ReplicaIdentity.DEFAULT, (), (1,)), None, id="deferrable key"),
        pytest.param(schema_of(ReplicaIdentity.NOTHING, (), (1,)), None, id="no identity"),
        pytest.param(schema_of(ReplicaIdentity.INDEX, ()), None, id="index dropped"),
    ],
)
def test_fold_key(schema: ReplicatedTableSchema, key: tuple[str, ...] | None) -> None:
    assert fold_key(schema) == key


class RowsInMemory:
    """Rows that keep what `together` was asked to do."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.table.schema

    def together(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> RowsInMemory:
        # As it goes to a Spark task.
        result = pickle.loads(pickle.dumps(function))(self.table)
        assert result.schema == schema
        return RowsInMemory(result)


def test_folded_folds_by_the_key_of_the_schema() -> None:
    row_type = pa.struct([pa.field(name, pa.string()) for name in ("a", "b", "c")])
    table = change_table(row_type, transactions([insert(a="1", b="k"), update({"a": "2", "b": "k"})]))

    rows = folded(Changes(schema_of(ReplicaIdentity.DEFAULT, (2,), (2,)), RowsInMemory(table)))  # type: ignore[arg-type]

    assert short(rows.table.to_pylist()) == [("I", "2", "k", None)]  # type: ignore[attr-defined]
