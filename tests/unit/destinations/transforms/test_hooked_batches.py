"""destinations.transforms: rows, changes and events through a Python function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import shop_transforms
from headrace.config.transforms import TransformsConfig
from headrace.destinations import MemoryDestination
from headrace.destinations.batch import Changes
from headrace.destinations.contract import Destination, DestinationContext
from headrace.destinations.transforms import TransformTable, transformed
from headrace.destinations.transforms.hook import Hook
from headrace.errors import ConfigError, DestinationRejected
from headrace.events import UNCHANGED, Delete, Insert, Relation, Update
from headrace.lsn import Lsn
from headrace.schema import ReplicaIdentity, ReplicatedTableSchema
from headrace.stores import MemoryStore
from headrace.testing.example_tables import altered_table, example_column, example_table
from headrace.testing.local_rows import Deleted, Inserted, Updated, batch_of, local_rows, transaction

NOTES = example_table(16_950, "notes", {"id": "int8", "head": "text", "body": "text", "map": "hstore"}, ("id",))
WHOLE = example_table(
    16_951, "whole", {"id": "int8", "head": "text", "body": "text"}, ("id",), identity=ReplicaIdentity.FULL
)


class Recorder(MemoryDestination):
    """Keeps the changes that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[dict[str, Any]] = []

    def write_events(self, batch: Any) -> Any:
        steps = [step for table in batch.tables for step in table.steps if isinstance(step, Changes)]
        self.changes += [row for step in steps for some in step.rows.batches() for row in some.to_pylist()]
        return super().write_events(batch)


Made = tuple[Destination, Recorder]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    """A destination behind a function, open."""

    def make(function: Callable[[Any, Any], Any], *tables: ReplicatedTableSchema) -> Made:
        monkeypatch.setattr(shop_transforms, "same", function)
        inner = Recorder()
        settings = {str(table.table.name): {"transform": "shop_transforms:same"} for table in tables}
        outer = transformed(inner, TransformsConfig.model_validate({"tables": settings}))
        outer.startup(DestinationContext(1, MemoryStore(), None, tables))
        return outer, inner

    return make


def note(key: int, head: str = "h", body: Any = "b") -> dict[str, Any]:
    return {"id": key, "head": head, "body": body, "map": {"k": "v"}}


def write(outer: Destination, *happenings: Any) -> None:
    outer.write_events(batch_of(transaction(Lsn(100), *happenings), end=Lsn(200)))


def reworked(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
    size, body = pc.utf8_length(batch["body"]), pc.utf8_upper(batch["body"])
    return pa.RecordBatch.from_pydict({"map": batch["map"], "size": size, "body": body, "id": batch["id"]})


def test_changes_and_events_say_the_same(made: Callable[..., Made]) -> None:
    outer, inner = made(reworked, NOTES)
    outer.write_table_rows(NOTES, local_rows(NOTES, [note(1), note(2), note(3)]), 0)
    write(
        outer,
        Inserted(NOTES, note(4, body="ü")), Updated(NOTES, note(1, body=UNCHANGED)),
        Updated(NOTES, note(20, body="long"), old={"id": 2}), Deleted(NOTES, {"id": 3}),
    )  # fmt: skip
    shown = {"map": {"k": "v"}}
    assert sorted(inner.rows(NOTES.table.name).to_pylist(maps_as_pydicts="strict"), key=lambda row: row["id"]) == [
        {**shown, "size": 1, "body": "B", "id": 1},
        {**shown, "size": 1, "body": "Ü", "id": 4},
        {**shown, "size": 4, "body": "LONG", "id": 20},
    ]
    # Both columns that are made of the one that was not sent stay as they are.
    assert [change["unchanged"] for change in inner.changes] == [None, [1, 2], None, None]
    nothing = dict.fromkeys(("map", "size", "body"))
    assert [change["old"] for change in inner.changes] == [None, None, {**nothing, "id": 2}, {**nothing, "id": 3}]
    events = [event for event in inner.events() if isinstance(event, Insert | Update | Delete)]
    assert [event.row for event in events if isinstance(event, Insert | Update)] == [
        {**shown, "size": 1, "body": "Ü", "id": 4},
        {**shown, "size": UNCHANGED, "body": UNCHANGED, "id": 1},
        {**shown, "size": 4, "body": "LONG", "id": 20},
    ]
    assert [event.old for event in events if isinstance(event, Update | Delete)] == [None, {"id": 2}, {"id": 3}]
    assert {event.schema for event in events} == {events[0].schema}
    assert [column.name for column in events[0].schema.columns] == ["map", "size", "body", "id"]


def test_many_changes_of_which_different_values_were_sent(made: Callable[..., Made]) -> None:
    def lower(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
        for name in ("head", "body"):
            if name in batch.schema.names:
                batch = batch.append_column(f"lower_{name}", pc.utf8_lower(batch[name]))
        return batch

    outer, inner = made(lower, NOTES)
    outer.write_table_rows(NOTES, local_rows(NOTES, [note(n, f"H{n}", f"B{n}") for n in range(40)]), 0)
    sent = [
        (n, f"N{n}" if n % 2 else UNCHANGED, f"M{n}" if n % 3 else UNCHANGED)
        for n in (7, 3, 12, 0, 8, 9, 1, 30, 18, 24, 2)
    ]
    write(outer, *(Updated(NOTES, note(n, head, body)) for n, head, body in sent), Deleted(NOTES, {"id": 5}))
    expected = {n: (f"H{n}", f"B{n}") for n in range(40) if n != 5}
    for n, head, body in sent:
        expected[n] = (expected[n][0] if head is UNCHANGED else head, expected[n][1] if body is UNCHANGED else body)
    found = sorted(inner.rows(NOTES.table.name).to_pylist(), key=lambda row: row["id"])
    assert [{name: row[name] for name in row if name != "map"} for row in found] == [
        {"id": n, "head": h, "body": b, "lower_head": h.lower(), "lower_body": b.lower()}
        for n, (h, b) in sorted(expected.items())
    ]


def test_whole_old_rows_pass_through_too(made: Callable[..., Made]) -> None:
    def shorter(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
        return batch.set_column(1, "head", pc.utf8_upper(batch["head"])).drop_columns(["body"])

    outer, inner = made(shorter, WHOLE)
    old, new = {"id": 1, "head": "a", "body": "x"}, {"id": 1, "head": "b", "body": "x"}
    outer.write_table_rows(WHOLE, local_rows(WHOLE, [old]), 0)
    write(outer, Updated(WHOLE, new, old=old))
    assert [(c["row"], c["old"]) for c in inner.changes] == [({"id": 1, "head": "B"}, {"id": 1, "head": "A"})]
    (event,) = (event for event in inner.events() if isinstance(event, Update))
    assert (event.row, event.old) == ({"id": 1, "head": "B"}, {"id": 1, "head": "A"})
    assert inner.rows(WHOLE.table.name).to_pylist() == [{"id": 1, "head": "B"}]


def test_a_column_of_several_of_which_one_was_not_sent(made: Callable[..., Made]) -> None:
    def joined(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
        return batch.append_column("all", pc.binary_join_element_wise(batch["head"], batch["body"], " "))

    outer, inner = made(joined, NOTES)
    write(outer, Inserted(NOTES, note(1)))
    with pytest.raises(DestinationRejected, match="TOASTed value of body") as caught:
        write(outer, Updated(NOTES, note(1, body=UNCHANGED)))
    assert 'ALTER TABLE "public"."notes" REPLICA IDENTITY FULL' in caught.value.hint
    assert [row["all"] for row in inner.rows(NOTES.table.name).to_pylist()] == ["h b"]


def test_values_set_aside_are_those_of_columns_that_stay(made: Callable[..., Made]) -> None:
    def years(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
        year = pc.year(batch["other"])
        return pa.RecordBatch.from_pydict({"id": batch["id"], "date": batch["day"], "other": year})

    dated = example_table(16_952, "dated", {"id": "int8", "day": "date", "other": "date", "hidden": "date"}, ("id",))
    outer, inner = made(years, dated)
    rejected = [{"key": '{"id":"1"}', "column": c, "text": "infinity"} for c in ("day", "other", "hidden")]
    rows = local_rows(dated, [{"id": 1, "day": None, "other": None, "hidden": None}], rejected=rejected)
    outer.write_table_rows(dated, rows, 0)
    assert [row["column"] for row in inner.quarantine(dated.table.name).to_pylist()] == ["date"]


def is_sample(batch: pa.RecordBatch) -> bool:
    return bool(batch["head"][0].as_py() != "secret")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda b: b.slice(1), "returns 0 rows for 1"),
        (lambda b: b.append_column("more", b["id"]), "returns something else than for sample rows: a column more more"),
        (lambda b: b.drop_columns(["head"]), "returns something else than for sample rows: no column head"),
        (lambda b: b.set_column(1, "head", b["id"]), "sample rows: column head as int64, not string"),
        (lambda b: b.set_column(0, "id", pc.add(b["id"], 1)), "changes values of id, which is part of the table's key"),
        (lambda b: b.append_column("id", b["id"]), "returns two columns with the name id"),
        (lambda b: b["head"].cast(pa.int64()), "failed: ArrowInvalid at test_hooked_batches.py:"),
        (lambda _: sys.exit(3), "failed: SystemExit at test_hooked_batches.py:"),
        (lambda b: b["head"], "returns StringArray, not a pyarrow.RecordBatch"),
    ],
)  # fmt: skip
def test_a_function_that_changes_its_mind(
    made: Callable[..., Made], function: Callable[[pa.RecordBatch], Any], told: str
) -> None:
    outer, inner = made(lambda batch, _: batch if is_sample(batch) else function(batch), NOTES)
    for attempt in (
        lambda: outer.write_table_rows(NOTES, local_rows(NOTES, [note(1, "secret")]), 0),
        lambda: write(outer, Inserted(NOTES, note(1, "secret"))),
    ):
        with pytest.raises(DestinationRejected, match=told) as caught:
            attempt()
        assert "shop_transforms:same of table public.notes" in str(caught.value)
        assert "secret" not in str(caught.value) + caught.value.hint
    # The other tables of the batch must be able to continue without it.
    assert caught.value.table_id == NOTES.table.id
    assert inner.tables() == []


def test_a_column_of_nothing_but_nulls_has_its_type(made: Callable[..., Made]) -> None:
    """A list of None has no type in Arrow."""

    def doubled(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
        words = [None if word is None else word * 2 for word in batch["head"].to_pylist()]
        return batch.append_column("twice", pa.array(words))

    outer, inner = made(doubled, NOTES)
    write(outer, Inserted(NOTES, {**note(1), "head": None}), Inserted(NOTES, note(2)))
    write_again = batch_of(transaction(Lsn(300), Inserted(NOTES, {**note(3), "head": None})), end=Lsn(400))
    outer.write_events(write_again)
    found = sorted(inner.rows(NOTES.table.name).to_pylist(), key=lambda row: row["id"])
    assert [row["twice"] for row in found] == [None, "hh", None]


def test_the_function_knows_its_table(made: Callable[..., Made]) -> None:
    seen: list[TransformTable] = []

    def looking(batch: pa.RecordBatch, table: TransformTable) -> pa.RecordBatch:
        seen.append(table)
        return batch

    made(looking, NOTES)
    assert set(seen) == {TransformTable("public", "notes", ("id", "head", "body", "map"), ("id",))}
    assert str(seen[0]) == "public.notes"


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("no_such_module:f", "no_such_module:f cannot be imported"),
        ("shop_transforms:nothing", "the module shop_transforms has no function nothing"),
    ],
)
def test_a_function_that_is_not_there(reference: str, told: str) -> None:
    config = TransformsConfig.model_validate({"tables": {"public.notes": {"transform": reference}}})
    with pytest.raises(ConfigError, match=told):
        transformed(MemoryDestination(), config)


def test_a_function_that_a_task_cannot_import() -> None:
    batch = local_rows(NOTES, [note(1)]).table.to_batches()[0]
    with pytest.raises(DestinationRejected, match=r"no_such_module:f of table public\.notes is not there") as caught:
        Hook("no_such_module:f", "/nowhere").called(batch, NOTES)
    assert "No module named 'no_such_module'" in str(caught.value)
    assert "install no_such_module where tasks run" in caught.value.hint


def test_a_module_that_only_the_driver_has_on_its_path(tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text("def f(batch, table):\n    return batch\n")
    batch = local_rows(NOTES, [note(1)]).table.to_batches()[0]
    before = list(sys.path)
    try:
        assert Hook("only_here:f", str(tmp_path)).called(batch, NOTES) is batch
    finally:
        sys.path[:] = before
        sys.modules.pop("only_here", None)


def test_which_changes_of_the_table_can_be_followed(made: Callable[..., Made]) -> None:
    outer, _ = made(lambda batch, _: batch.append_column("size", pc.utf8_length(batch["body"])), NOTES)
    columns = {column.name: column for column in NOTES.columns}

    def follows(*changed: Any) -> bool:
        new = altered_table(NOTES, *changed)
        return outer.follows(Relation(Lsn(1), Lsn(1), NOTES, new))

    assert follows(*columns.values(), example_column("more", 5, "int4"))
    assert follows(*(replace(c, name="title") if c.name == "head" else c for c in columns.values()))
    # Another column under the old name: what was computed from the one before is not what it comes to now.
    again = example_column("body", 6, "text")
    assert not follows(columns["id"], columns["head"], columns["map"], again)
