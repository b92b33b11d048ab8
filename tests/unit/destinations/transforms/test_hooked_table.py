"""destinations.transforms.hooked_table: what follows from the origins of a function's columns."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.destinations.transforms.hooked_table import HookedTable, hooked_table
from headrace.destinations.transforms.spark_plan import Origin
from headrace.destinations.unchanged import NOT_THERE
from headrace.schema import ReplicaIdentity
from headrace.testing.example_tables import example_table

PEOPLE = example_table(16_900, "people", {"id": "int8", "name": "text", "bio": "text"}, ("id",))


@pytest.fixture
def table() -> HookedTable:
    """The id as `key`, the length of the name, and name and biography in one."""
    fields = [pa.field("key", pa.int64()), pa.field("length", pa.int32()), pa.field("about", pa.string())]
    origins = (
        Origin("id", frozenset({"id"})),
        Origin(None, frozenset({"name"})),
        Origin(None, frozenset({"name", "bio"})),
    )
    return hooked_table(PEOPLE, fields, origins)


def test_what_follows_from_the_origins(table: HookedTable) -> None:
    assert table.fields.names == ["key", "length", "about"]
    assert table.sources == (0, 1, NOT_THERE)
    assert table.mixed == {"name", "bio"}
    assert table.kept == {"id": "key"}


@pytest.mark.parametrize("name", ["fields", "sources", "mixed", "kept"])
def test_it_is_worked_out_once(table: HookedTable, name: str) -> None:
    assert getattr(table, name) is getattr(table, name)


def test_it_goes_to_tasks_whatever_was_asked_of_it(table: HookedTable) -> None:
    there = pickle.loads(pickle.dumps(table))
    assert there == table
    assert (table.fields, table.kept) == (there.fields, there.kept)
    assert pickle.loads(pickle.dumps(table)) == table


def test_rows_without_key_are_not_told_by_what_nothing_fills() -> None:
    """The source's `bio` is one that a policy keeps, and that stays NULL."""
    columns = {"name": "text", "bio": "text"}
    whole = example_table(16_901, "notes", columns, identity=ReplicaIdentity.FULL)
    fields = [pa.field(name, pa.string()) for name in ("title", "bio", "about")]
    origins = (
        Origin("name", frozenset({"name"})),
        Origin("bio", frozenset({"bio"})),
        Origin(None, frozenset({"name", "bio"})),
    )
    target = hooked_table(whole, fields, origins).target
    assert [column.name for column in target.found_by] == ["title", "bio", "about"]
    kept = replace(whole, table=replace(whole.table, identity_attnums=(1,)))
    assert [column.name for column in hooked_table(kept, fields, origins).target.found_by] == ["title"]
