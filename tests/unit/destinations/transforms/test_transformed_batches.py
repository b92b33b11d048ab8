"""destinations.transforms: what a destination is given of rows, changes, events and values set aside."""

from __future__ import annotations

import hmac
import pickle
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.config.transforms import TransformsConfig
from headrace.destinations.batch import Changes, EventBatch
from headrace.destinations.contract import Destination, DestinationContext
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.row_keys import row_keys
from headrace.destinations.transforms import events, sql, transformed
from headrace.destinations.transforms.table_transform import chosen, table_transform
from headrace.errors import ConfigError, DestinationRejected
from headrace.events import UNCHANGED, Delete, Insert, Update
from headrace.lsn import Lsn
from headrace.schema import ReplicaIdentity, ReplicatedTableSchema, ReplicationMask, TableName
from headrace.stores import MemoryStore
from headrace.stores.encoding import encode_schema
from headrace.testing.example_tables import ORDERS, example_table
from headrace.testing.local_rows import (
    Deleted,
    Inserted,
    Updated,
    arrow_schema_of,
    batch_of,
    local_rows,
    transaction,
)

SALT = "pepper, of sixteen bytes"
PEOPLE = example_table(
    16_900, "people", {"id": "int8", "name": "text", "email": "text", "age": "int4", "bio": "text"}, ("id",)
)
WHOLE = example_table(
    16_901, "whole", {"id": "int8", "name": "text", "age": "int4"}, ("id",), identity=ReplicaIdentity.FULL
)


class Recorder(MemoryDestination):
    """Keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[EventBatch] = []

    def write_events(self, batch: EventBatch) -> Any:
        self.batches.append(batch)
        return super().write_events(batch)

    def changes(self) -> list[dict[str, Any]]:
        steps = [step for batch in self.batches for table in batch.tables for step in table.steps]
        return [row for s in steps if isinstance(s, Changes) for b in s.rows.batches() for row in b.to_pylist()]


def started(
    settings: dict[str, Any], *tables: ReplicatedTableSchema, salt: str | None = SALT
) -> tuple[Destination, Recorder]:
    inner = Recorder()
    named = {str(table.table.name): settings for table in tables}
    outer = transformed(inner, TransformsConfig.model_validate({"salt": salt, "tables": named}))
    outer.startup(DestinationContext(1, MemoryStore(), None, (ORDERS, *tables)))
    return outer, inner


def person(key: int, name: str = "Ann", email: str | None = "a@b.c", age: int | None = 30, bio: Any = "long") -> Any:
    return {"id": key, "name": name, "email": email, "age": age, "bio": bio}


def digest(value: str, domain: str = "email") -> str:
    return hmac.new(SALT.encode(), f"{domain}\0{value}".encode(), "sha256").hexdigest()


def write(outer: Destination, *happenings: Any, lsn: int = 100) -> None:
    outer.write_events(batch_of(transaction(Lsn(lsn), *happenings), end=Lsn(lsn + 100)))


def rows(inner: Recorder, table: ReplicatedTableSchema) -> list[dict[str, Any]]:
    return sorted(inner.rows(table.table.name).to_pylist(), key=lambda row: row["id"])


def test_excluded_columns_are_nowhere() -> None:
    outer, inner = started({"columns": {"exclude": ["email", "name"]}}, PEOPLE)
    outer.write_table_rows(PEOPLE, local_rows(PEOPLE, [person(1)]), 0)
    write(outer, Inserted(PEOPLE, person(2)), Updated(PEOPLE, person(1, bio=UNCHANGED)))
    assert inner.rows(PEOPLE.table.name).column_names == ["id", "age", "bio"]
    assert rows(inner, PEOPLE) == [{"id": 1, "age": 30, "bio": "long"}, {"id": 2, "age": 30, "bio": "long"}]
    # Positions count in what is left: bio was the fifth, and is the third.
    assert [change["unchanged"] for change in inner.changes()] == [None, [2]]
    assert [sorted(change["row"]) for change in inner.changes()] == [["age", "bio", "id"]] * 2
    assert all("email" not in str(event) or "a@b.c" not in str(event) for event in inner.events())


def test_what_a_definition_tells_of_hidden_columns_is_nowhere() -> None:
    told = {"default": "'secret'::text", "missing": "secret"}
    columns = tuple(replace(c, **told) if c.name != "id" else c for c in PEOPLE.table.columns)  # type: ignore[arg-type]
    unpublished = ReplicationMask(PEOPLE.mask.attnums - {PEOPLE.table.column("bio").attnum})
    people = replace(PEOPLE, table=replace(PEOPLE.table, columns=columns), mask=unpublished)
    mask = {"name": {"kind": "hash"}, "age": {"kind": "fixed", "value": "42"}}
    settings = TransformsConfig.model_validate(
        {"salt": SALT, "tables": {"public.people": {"columns": {"exclude": ["email"], "mask": mask}}}}
    ).tables["public.people"]
    target = table_transform(settings, SALT, chosen(settings, people), people).target
    assert "secret" not in encode_schema(target)
    assert "secret" in encode_schema(people)
    # Of masked ones it tells what rows show behind the mask.
    assert {c.name: c.missing for c in target.table.columns if c.missing} == {
        "name": digest("secret", "name"),
        "age": "42",
    }


def test_masks() -> None:
    mask = {"name": {"kind": "null"}, "email": {"kind": "hash"}, "age": {"kind": "fixed", "value": "42"}}
    outer, inner = started({"columns": {"mask": mask}}, PEOPLE)
    outer.write_table_rows(PEOPLE, local_rows(PEOPLE, [person(1), person(2, email=None, age=None)]), 0)
    write(outer, Inserted(PEOPLE, person(3, email="x@y.z")), Updated(PEOPLE, person(1, email="new@b.c")))
    shown = [(row["id"], row["name"], row["email"], row["age"]) for row in rows(inner, PEOPLE)]
    assert shown == [(1, None, digest("new@b.c"), 42), (2, None, None, 42), (3, None, digest("x@y.z"), 42)]
    # Single events say the same as batches.
    told = [e.row for e in inner.events() if isinstance(e, Insert | Update)]
    assert [(row["name"], row["email"], row["age"]) for row in told] == [
        (None, digest("x@y.z"), 42), (None, digest("new@b.c"), 42),
    ]  # fmt: skip


def test_a_fixed_value_is_in_whole_old_rows_too_whatever_the_source_has() -> None:
    keyless = example_table(16_904, "keyless", {"n": "int4", "note": "text"}, (), identity=ReplicaIdentity.FULL)
    outer, inner = started({"columns": {"mask": {"note": {"kind": "fixed", "value": "…"}}}}, keyless)
    outer.write_table_rows(keyless, local_rows(keyless, [{"n": n, "note": None} for n in (1, 2)]), 0)
    write(
        outer,
        Deleted(keyless, {"n": 1, "note": None}),
        Updated(keyless, {"n": 3, "note": "x"}, old={"n": 2, "note": None}),
    )
    assert inner.rows(keyless.table.name).to_pylist() == [{"n": 3, "note": "…"}]
    # Batches and single events agree.
    olds = [event.old for event in inner.events() if isinstance(event, Update | Delete)]
    assert [change["old"] for change in inner.changes()] == olds == [{"n": 1, "note": "…"}, {"n": 2, "note": "…"}]


def test_a_hashed_key_still_finds_its_row() -> None:
    keyed = example_table(16_902, "keyed", {"email": "text", "n": "int4"}, ("email",))
    outer, inner = started({"columns": {"mask": {"email": {"kind": "hash"}}}}, keyed)
    outer.write_table_rows(keyed, local_rows(keyed, [{"email": "a", "n": 1}, {"email": "b", "n": 2}]), 0)
    write(
        outer,
        Updated(keyed, {"email": "c", "n": 3}, old={"email": "a"}),
        Deleted(keyed, {"email": "b"}),
        Inserted(keyed, {"email": "d", "n": 4}),
    )
    found = inner.rows(keyed.table.name).to_pylist()
    assert sorted((row["email"], row["n"]) for row in found) == sorted([(digest("c"), 3), (digest("d"), 4)])


def test_equal_values_of_two_columns_have_equal_hashes_only_in_one_domain() -> None:
    table = example_table(16_904, "mails", {"id": "int4", "email": "text", "sender": "text", "other": "text"}, ("id",))
    mask = {"email": {"kind": "hash"}, "sender": {"kind": "hash", "domain": "email"}, "other": {"kind": "hash"}}
    outer, inner = started({"columns": {"mask": mask}}, table)
    outer.write_table_rows(table, local_rows(table, [{"id": 1, "email": "a", "sender": "a", "other": "a"}]), 0)
    (row,) = rows(inner, table)
    assert row == {"id": 1, "email": digest("a"), "sender": digest("a"), "other": digest("a", "other")}


def test_a_salt_longer_than_a_block_is_hashed_first() -> None:
    salt = "x" * 100
    table = example_table(16_905, "long_salt", {"id": "int4", "email": "text"}, ("id",))
    outer, inner = started({"columns": {"mask": {"email": {"kind": "hash"}}}}, table, salt=salt)
    outer.write_table_rows(table, local_rows(table, [{"id": 1, "email": "ä"}]), 0)
    assert rows(inner, table)[0]["email"] == hmac.new(salt.encode(), "email\0ä".encode(), "sha256").hexdigest()


def test_a_renamed_column_keeps_its_hashes() -> None:
    settings = TransformsConfig.model_validate(
        {"salt": SALT, "tables": {"public.people": {"columns": {"mask": {"email": {"kind": "hash"}}}}}}
    ).tables["public.people"]
    columns = tuple(replace(c, name="mail") if c.name == "email" else c for c in PEOPLE.table.columns)
    renamed = replace(PEOPLE, table=replace(PEOPLE.table, columns=columns))
    transform = table_transform(settings, SALT, chosen(settings, PEOPLE), renamed)
    (position,) = transform.masks
    assert transform.masks[position].domain == "email"


def test_hidden_values_are_not_set_aside() -> None:
    outer, inner = started({"columns": {"exclude": ["name"], "mask": {"email": {"kind": "hash"}}}}, PEOPLE)
    rejected = [{"key": '{"id":"1"}', "column": column, "text": "secret"} for column in ("name", "email", "age")]
    outer.write_table_rows(PEOPLE, local_rows(PEOPLE, [person(1)], rejected=rejected), 0)
    assert [row["column"] for row in inner.quarantine(PEOPLE.table.name).to_pylist()] == ["age"]
    keyed = example_table(16_903, "by_email", {"email": "text", "day": "date"}, ("email",))
    outer, inner = started({"columns": {"mask": {"email": {"kind": "hash"}}}}, keyed)
    rejected = [{"key": '{"email":"a@b.c"}', "column": "day", "text": "infinity"}]
    outer.write_table_rows(keyed, local_rows(keyed, [{"email": "a@b.c", "day": None}], rejected=rejected), 0)
    assert [(r["key"], r["text"]) for r in inner.quarantine(keyed.table.name).to_pylist()] == [(None, "infinity")]


def aside(table: ReplicatedTableSchema, row: dict[str, Any], column: str, text: str, **place: int) -> dict[str, Any]:
    batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema_of(table))
    return {"key": row_keys(table, batch)[0].as_py(), "column": column, "text": text, **place}


def test_values_of_rows_that_do_not_match_are_not_set_aside() -> None:
    outer, inner = started({"filter": "name = 'Ann'"}, PEOPLE)
    people = [person(1), person(2, name="Bob"), person(3)]
    outer.write_table_rows(
        PEOPLE, local_rows(PEOPLE, people, rejected=[aside(PEOPLE, p, "age", f"copied {p['id']}") for p in people]), 0
    )
    # An insert that does not match, an update that leaves, one that comes, and one that stays.
    now = [person(4, name="Bob"), person(1, name="Bob"), person(2), person(3)]
    happenings = [Inserted(PEOPLE, now[0]), *(Updated(PEOPLE, p) for p in now[1:])]
    rejected = [
        aside(PEOPLE, p, "age", f"streamed {p['id']}", commit_lsn=100, tx_ordinal=ordinal)
        for ordinal, p in enumerate(now)
    ]
    outer.write_events(batch_of(transaction(Lsn(100), *happenings), end=Lsn(200), rejected=rejected))
    shown = [row["text"] for row in inner.quarantine(PEOPLE.table.name).to_pylist()]
    assert shown == ["copied 1", "copied 3", "streamed 2", "streamed 3"]


def test_a_value_that_could_not_be_held_is_null_to_the_filter() -> None:
    dated = example_table(16_905, "dated", {"id": "int8", "day": "date"}, ("id",))
    row = {"id": 1, "day": None}
    for condition, shown in (("day > '2000-01-01'", 0), ("day IS NULL", 1)):
        outer, inner = started({"filter": condition}, dated)
        outer.write_table_rows(dated, local_rows(dated, [row], rejected=[aside(dated, row, "day", "infinity")]), 0)
        assert (inner.rows(dated.table.name).num_rows, inner.quarantine(dated.table.name).num_rows) == (shown, shown)


@pytest.mark.parametrize(("ages", "shown"), [((30, 30), 1), ((30, 9), 0)])
def test_of_rows_that_cannot_be_told_apart_all_must_match(ages: tuple[int, int], shown: int) -> None:
    unnamed = example_table(16_906, "unnamed", {"day": "date", "age": "int4"}, (), identity=ReplicaIdentity.NOTHING)
    outer, inner = started({"filter": "age >= 18"}, unnamed)
    rows = [{"day": None, "age": age} for age in ages]
    outer.write_table_rows(unnamed, local_rows(unnamed, rows, rejected=[aside(unnamed, rows[0], "day", "infinity")]), 0)
    assert inner.quarantine(unnamed.table.name).num_rows == shown


def test_rows_that_do_not_match_are_left_out() -> None:
    outer, inner = started({"filter": "age >= 18 AND name <> 'Bob'"}, PEOPLE)
    outer.write_table_rows(PEOPLE, local_rows(PEOPLE, [person(1), person(2, age=9), person(3, age=None)]), 0)
    assert [row["id"] for row in rows(inner, PEOPLE)] == [1]
    write(
        outer,
        Inserted(PEOPLE, person(4, age=10)),
        Inserted(PEOPLE, person(5, age=50)),
        Updated(PEOPLE, person(1, age=17)),
        Updated(PEOPLE, person(2, age=18)),
        Updated(PEOPLE, person(3, name="Bob")),
        Deleted(PEOPLE, {"id": 3}),
    )
    assert [row["id"] for row in rows(inner, PEOPLE)] == [2, 5]
    kinds = [(type(e).__name__, (e.old if isinstance(e, Delete) else e.row)["id"])
             for e in inner.events() if isinstance(e, Insert | Update | Delete)]  # fmt: skip
    assert kinds == [("Insert", 5), ("Delete", 1), ("Update", 2), ("Delete", 3), ("Delete", 3)]


def test_a_changed_key_of_a_row_that_no_longer_matches() -> None:
    outer, inner = started({"filter": "age >= 18"}, PEOPLE)
    outer.write_table_rows(PEOPLE, local_rows(PEOPLE, [person(1), person(2)]), 0)
    write(outer, Updated(PEOPLE, person(7, age=1), old={"id": 1}), Updated(PEOPLE, person(8), old={"id": 2}))
    assert [row["id"] for row in rows(inner, PEOPLE)] == [8]


def test_old_rows_decide_where_they_are_sent() -> None:
    outer, inner = started({"filter": "age >= 18"}, WHOLE)

    def whole(key: int, age: int) -> dict[str, Any]:
        return {"id": key, "name": "n", "age": age}

    outer.write_table_rows(WHOLE, local_rows(WHOLE, [whole(1, 20), whole(2, 5)]), 0)
    write(
        outer,
        Updated(WHOLE, whole(1, 30), old=whole(1, 20)),
        Updated(WHOLE, whole(2, 18), old=whole(2, 5)),
        Updated(WHOLE, whole(3, 2), old=whole(3, 1)),
        Updated(WHOLE, whole(1, 3), old=whole(1, 30)),
        Deleted(WHOLE, whole(4, 1)),
        Deleted(WHOLE, whole(2, 18)),
    )
    assert [change["op"] for change in inner.changes()] == ["U", "I", "D", "D"]
    assert rows(inner, WHOLE) == []
    names = [type(e).__name__ for e in inner.events() if isinstance(e, Insert | Update | Delete)]
    assert names == ["Update", "Insert", "Delete", "Delete"]


def test_events_are_decided_together_and_as_batches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(batch: pa.RecordBatch, *rest: Any) -> list[pa.Array]:
        asked.append(batch.num_rows)
        return sql.evaluate(batch, *rest)

    monkeypatch.setattr(events, "evaluate", counted)
    settings = {"filter": "age >= 18", "columns": {"mask": {"name": {"kind": "hash"}, "id": {"kind": "hash"}}}}
    outer, inner = started(settings, WHOLE)

    def whole(key: int, age: int) -> dict[str, Any]:
        return {"id": key, "name": f"n{key}", "age": age}

    happenings: list[Any] = []
    for key in range(0, 300, 3):
        happenings += [
            Inserted(WHOLE, whole(key, key % 36)),
            Updated(WHOLE, whole(key + 1, key % 24), old=whole(key, 35 - key % 36)),
            Deleted(WHOLE, whole(key + 2, key % 30)),
        ]
    write(outer, *happenings)
    told = [event for event in inner.events() if isinstance(event, Insert | Update | Delete)]
    assert asked == [400]
    assert 0 < len(told) < 300
    wanted = [(change["op"], change["row"], change["old"]) for change in inner.changes()]
    assert [
        (type(e).__name__[0], None if isinstance(e, Delete) else e.row, None if isinstance(e, Insert) else e.old)
        for e in told
    ] == wanted


def test_what_cannot_be_decided_is_an_error() -> None:
    outer, _ = started({"filter": "length(bio) > 2"}, PEOPLE)
    write(outer, Updated(PEOPLE, person(1)))
    with pytest.raises(DestinationRejected, match="TOASTed value") as caught:
        write(outer, Updated(PEOPLE, person(1, bio=UNCHANGED)), lsn=300)
    assert "REPLICA IDENTITY FULL" in caught.value.hint


def test_tables_without_settings_pass_untouched() -> None:
    outer, inner = started({"filter": "false"}, PEOPLE)
    given = local_rows(ORDERS, [{"id": 1, "name": "n", "note": None}])
    outer.write_table_rows(ORDERS, given, 0)
    assert inner.rows(ORDERS.table.name).to_pylist() == [{"id": 1, "name": "n", "note": None}]


def test_a_renamed_column_stays_excluded_and_a_renamed_table_too() -> None:
    outer, inner = started({"columns": {"exclude": ["email"]}}, PEOPLE)
    columns = tuple(replace(c, name="mail") if c.name == "email" else c for c in PEOPLE.table.columns)
    moved = replace(PEOPLE, table=replace(PEOPLE.table, columns=columns, name=TableName("public", "folk")))
    row = {("mail" if name == "email" else name): value for name, value in person(1).items()}
    outer.write_table_rows(moved, local_rows(moved, [row]), 0)
    assert inner.rows("public.folk").column_names == ["id", "name", "age", "bio"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"columns": {"exclude": ["emial"]}}, "names emial"),
        ({"columns": {"mask": {"phone": {"kind": "null"}}}}, "names phone"),
        ({"columns": {"exclude": ["id"]}}, "part of its key"),
        ({"columns": {"mask": {"id": {"kind": "fixed", "value": "1"}}}}, "part of its key"),
        ({"columns": {"mask": {"age": {"kind": "fixed", "value": "old"}}}}, "is no int4"),
        ({"filter": "agee > 1"}, "cannot be evaluated"),
        ({"filter": "age >"}, "cannot be evaluated"),
        ({"filter": "1); DROP TABLE x; --"}, "cannot be evaluated"),
        ({"filter": "EXISTS (SELECT * FROM read_csv('/etc/passwd'))"}, "cannot be evaluated"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        started(settings, PEOPLE)


def test_a_table_that_is_not_published() -> None:
    outer = transformed(MemoryDestination(), TransformsConfig.model_validate({"tables": {"public.nowhere": {}}}))
    with pytest.raises(ConfigError, match=r"names public\.nowhere"):
        outer.startup(DestinationContext(1, MemoryStore(), None, (ORDERS,)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tables": {"s.t": {"columns": {"mask": {"a": {"kind": "hash"}}}}}}, "salt is missing"),
        ({"salt": "fifteen bytes..", "tables": {"s.t": {"columns": {"mask": {"a": {"kind": "hash"}}}}}}, "16 bytes"),
        ({"tables": {"s.t": {"columns": {"mask": {"a": {"kind": "null", "domain": "d"}}}}}}, "domain belongs to kind"),
        ({"tables": {"s.t": {"columns": {"mask": {"a": {"kind": "fixed"}}}}}}, "value belongs to kind fixed"),
        ({"tables": {"s.t": {"columns": {"mask": {"a": {"kind": "null"}}, "exclude": ["a"]}}}}, "choose one"),
    ],
)
def test_settings_that_contradict_each_other(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TransformsConfig.model_validate(given)


def test_the_salt_is_shown_nowhere_and_travels_to_tasks() -> None:
    config = TransformsConfig.model_validate(
        {"salt": SALT, "tables": {"public.people": {"columns": {"mask": {"email": {"kind": "hash"}}}}}}
    )
    settings = config.tables["public.people"]
    transform = table_transform(settings, SALT, chosen(settings, PEOPLE), PEOPLE)
    assert SALT not in repr(transform) + repr(config)
    assert pickle.loads(pickle.dumps(transform)).salt == SALT


def test_an_empty_batch_keeps_its_columns() -> None:
    outer, inner = started({"columns": {"exclude": ["bio"], "mask": {"email": {"kind": "hash"}}}, "filter": "id > 0"}, PEOPLE)  # fmt: skip  # noqa: E501
    outer.write_table_rows(PEOPLE, local_rows(PEOPLE, []), 0)
    assert inner.rows(PEOPLE.table.name).schema.names == ["id", "name", "email", "age"]
    assert inner.rows(PEOPLE.table.name).schema.field("email").type == pa.string()


@pytest.mark.parametrize("settings", [{"filter": "id > 0"}, {"columns": {"mask": {"email": {"kind": "hash"}}}}])
def test_without_duckdb_it_says_what_to_install(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    sql._engine.cache_clear()
    with pytest.raises(ConfigError, match="need the Python package duckdb") as raised:
        started(settings, PEOPLE)
    assert raised.value.hint == "install it: pip install 'headrace[duckdb]'"
