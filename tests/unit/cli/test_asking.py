"""cli.asking: the table that an operator means, or the nearest to it."""

from __future__ import annotations

import pytest

from headrace.cli.asking import SourceView, find_table, known_tables, when
from headrace.errors import TableNotFound
from headrace.schema import TableName
from headrace.stores import MemoryStore
from headrace.table_state import State, TableState
from headrace.testing.store_suite import A, B, fill

TABLES = {
    1: TableName("public", "orders"),
    2: TableName("shop", "orders"),
    3: TableName("shop", "Line Items"),
    4: TableName("a.b", "c"),
}


@pytest.mark.parametrize(
    ("name", "table_id"),
    [("public.orders", 1), ("shop.orders", 2), ("Line Items", 3), ('"shop"."Line Items"', 3), ("a.b.c", 4), ("c", 4)],
)
def test_a_table_is_found_by_each_of_its_names(name: str, table_id: int) -> None:
    assert find_table(name, TABLES) == table_id


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("public.ordrs", "did you mean public.orders?"),
        ("Line Item", "did you mean shop.Line Items?"),
        ("xyz", "it has a.b.c, public.orders, shop.Line Items, shop.orders"),
    ],
)
def test_a_table_that_is_not_there_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(TableNotFound) as caught:
        find_table(name, TABLES)
    assert (caught.value.message, caught.value.hint) == (f"no table {name} in this pipeline", hint)


def test_a_name_that_several_tables_have_must_be_qualified() -> None:
    with pytest.raises(TableNotFound, match=r"several tables are called orders: public\.orders, shop\.orders"):
        find_table("orders", TABLES)


def test_many_tables_are_not_all_listed() -> None:
    with pytest.raises(TableNotFound) as caught:
        find_table("nothing like it", {i: TableName("s", f"t{i:02}") for i in range(12)})
    assert caught.value.hint.endswith("s.t09 and 2 more")


def test_known_are_those_with_a_state_by_the_name_of_today() -> None:
    store = MemoryStore()
    fill(store, A)
    store.update_table_states({B: TableState(State.INIT)})
    assert known_tables(store, SourceView({}, None)) == {A: TableName("public", "Orders 2")}
    today = {A: TableName("public", "renamed"), B: TableName("public", "b"), 7: TableName("public", "not seen")}
    assert known_tables(store, SourceView(today, True)) == {A: today[A], B: today[B]}


def test_when_it_will_be_seen() -> None:
    told = {running: when(running) for running in (True, False, None)}
    assert [running for running in told if "within seconds" in told[running]] == [True, None]
    assert [running for running in told if "when it starts" in told[running]] == [False, None]
