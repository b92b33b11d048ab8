"""destinations.transforms: what a function makes of a table, learned from sample rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import shop_transforms
from headrace.destinations.transforms.hook import Hook, TransformTable
from headrace.destinations.transforms.hooked_table import HookedTable, Origin, hooked_table
from headrace.destinations.transforms.probing import probe
from headrace.errors import ConfigError, DestinationRejected
from headrace.schema import ReplicaIdentity, ReplicatedTableSchema
from headrace.testing.example_tables import example_table
from headrace.testing.example_values import FAMILIES, family_table

PEOPLE = example_table(16_900, "people", {"id": "int8", "name": "text", "bio": "text", "age": "int4"}, ("id",))
Function = Callable[[pa.RecordBatch, TransformTable], Any]


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., HookedTable]:
    def learn(function: Function, schema: ReplicatedTableSchema = PEOPLE) -> HookedTable:
        monkeypatch.setattr(shop_transforms, "same", function)
        found = probe(Hook.named("shop_transforms:same"), schema)
        return hooked_table(schema, found.made, found.origins, found.indispensable)

    return learn


def reads(table: HookedTable) -> dict[str, tuple[str | None, set[str], set[str]]]:
    pairs = zip(table.target.columns, table.origins, strict=True)
    return {column.name: (o.same_as, set(o.reads), set(o.may_read)) for column, o in pairs}


def sized(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
    """It does without the biography."""
    batch = batch.append_column("upper", pc.utf8_upper(batch["name"]))
    if "bio" in batch.schema.names:
        batch = batch.append_column("size", pc.utf8_length(batch["bio"])).drop_columns(["bio"])
    return batch


def longest(batch: pa.RecordBatch) -> pa.Array:
    return pc.max_element_wise(*(pc.utf8_length(column) for column in batch.columns if column.type == "string"))


def test_what_columns_are_made_of(learned: Callable[..., HookedTable]) -> None:
    table = learned(sized)
    assert reads(table) == {
        "id": ("id", {"id"}, {"id"}),
        "name": ("name", {"name"}, {"name"}),
        "age": ("age", {"age"}, {"age"}),
        "upper": (None, {"name"}, {"name"}),
        "size": (None, {"bio"}, {"bio", "name"}),
    }
    assert table.indispensable == {"name"}
    assert table.kept == {"id": "id", "name": "name", "age": "age"}
    assert [(c.name, c.type.name) for c in table.target.columns] == [
        ("id", "int8"), ("name", "text"), ("age", "int4"), ("upper", "text"), ("size", "int4"),
    ]  # fmt: skip


def test_what_stays_when_a_value_was_not_sent(learned: Callable[..., HookedTable]) -> None:
    table = learned(sized)
    assert table.staying(frozenset()) == ()
    assert table.staying(frozenset({"bio"})) == (4,)
    assert table.staying(frozenset({"name", "bio"})) == (1, 3, 4)
    with pytest.raises(DestinationRejected, match=r"cannot compute column size: .* value of name"):
        table.staying(frozenset({"name"}))


@pytest.mark.parametrize(
    "function",
    [
        lambda b, _: b.append_column("all", pc.binary_join_element_wise(b["name"], b["bio"], " ")),
        # Of whatever columns are there: without one it has another value.
        lambda b, _: b.append_column("all", pc.binary_join_element_wise(*(c.cast("string") for c in b.columns), " ")),
        lambda b, _: b.append_column("all", longest(b)),
        # It reads the column, though no sample shows it.
        lambda b, _: b.append_column("all", pc.coalesce(pc.starts_with(b["bio"], "VIP"), False)),
    ],
    ids=["both", "whatever there is", "the longer one", "a rare value"],
)  # fmt: skip
def test_a_column_is_not_computed_of_what_was_not_sent(learned: Callable[..., HookedTable], function: Function) -> None:
    with pytest.raises(DestinationRejected, match="cannot compute column all") as caught:
        learned(function).staying(frozenset({"bio"}))
    assert 'ALTER TABLE "public"."people" REPLICA IDENTITY FULL' in caught.value.hint


def test_a_function_that_fails_for_samples_is_tried_with_nulls(learned: Callable[..., HookedTable]) -> None:
    def strict(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
        return batch.append_column("at", batch["name"].cast(pa.timestamp("us")))

    table = learned(strict)
    assert reads(table)["at"] == (None, set(), {"id", "name", "bio", "age"})
    assert table.kept.keys() == {"id", "name", "bio", "age"}
    with pytest.raises(DestinationRejected, match="cannot compute column at"):
        table.staying(frozenset({"bio"}))


def test_renamed_and_rebuilt_columns(learned: Callable[..., HookedTable]) -> None:
    def rebuilt(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"id": pa.array(batch["id"].to_pylist()), "title": batch["name"]})

    table = learned(rebuilt)
    assert table.kept == {"id": "id", "name": "title"}
    assert [column.attnum for column in table.target.columns] == [1, 2]


def test_it_goes_to_tasks_whatever_was_asked_of_it(learned: Callable[..., HookedTable]) -> None:
    table = learned(sized)
    there = pickle.loads(pickle.dumps(table))
    assert there == table
    assert (table.fields, table.kept, table.key) == (there.fields, there.kept, there.key)
    assert pickle.loads(pickle.dumps(table)) == table


@pytest.mark.parametrize("family", FAMILIES)
def test_columns_of_every_type_pass(learned: Callable[..., HookedTable], family: str) -> None:
    schema = family_table(family)
    table = learned(lambda batch, _: batch, schema)
    assert table.target.columns == schema.columns
    assert all(origin.same_as == column.name for column, origin in zip(schema.columns, table.origins, strict=True))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda b, _: b.drop_columns(["id"]), "changes or drops id, which is part of its key"),
        (lambda b, _: b.set_column(0, "id", pc.add(b["id"], 1)), "changes or drops id"),
        (lambda b, _: b.append_column("s", pa.StructArray.from_arrays([b["id"]], ["x"])), "column s the type struct"),
        (lambda b, _: b.append_column("n", pa.nulls(len(b))), "column n the type null"),
        (lambda b, _: b.append_column("_headrace_op", b["id"]), "gives a column the name _headrace_op"),
        (lambda b, _: b.append_column("id", b["id"]), "returns two columns with the name id"),
        (lambda b, _: b.slice(1), "returns 1 rows for 2"),
        (lambda b, _: b.append_column("r", pc.random(len(b))), "returns other values in column r each time"),
        (lambda b, _: b.select(["nowhere"]), "the transform shop_transforms:same of table public.people failed"),
        (lambda b, _: pa.table(b), "returns Table, not a pyarrow.RecordBatch"),
        (lambda b: b, "public.people failed: TypeError"),
    ],
)  # fmt: skip
def test_what_a_function_may_not_do(learned: Callable[..., HookedTable], function: Function, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        learned(function)
    assert caught.value.hint


def test_rows_without_key_are_not_told_by_what_nothing_fills() -> None:
    """The source's `bio` is one that a policy keeps, and that stays NULL."""
    whole = example_table(16_901, "notes", {"name": "text", "bio": "text"}, identity=ReplicaIdentity.FULL)
    made = pa.schema([pa.field(name, pa.string()) for name in ("title", "bio", "about")])
    name, bio = frozenset({"name"}), frozenset({"bio"})
    origins = (Origin("name", name, name), Origin("bio", bio, bio), Origin(None, name | bio, name | bio))
    target = hooked_table(whole, made, origins, frozenset()).target
    assert [column.name for column in target.found_by] == ["title", "bio", "about"]
    kept = replace(whole, table=replace(whole.table, identity_attnums=(1,)))
    assert [column.name for column in hooked_table(kept, made, origins, frozenset()).target.found_by] == ["title"]
