"""destinations.duckdb.plans: a table whose name cannot be had fails alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.config.duckdb import DuckDBConfig
from headrace.destinations.contract import DestinationContext
from headrace.destinations.duckdb.plans import TablePlans
from headrace.errors import ConfigError
from headrace.schema import ReplicatedTableSchema, TableName
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table

ORDERS = example_table(1, "orders", {"id": "int8"}, ("id",))


def in_schema(schema: str, name: str) -> ReplicatedTableSchema:
    found = example_table(2, name, {"id": "int8"}, ("id",))
    return replace(found, table=replace(found.table, name=TableName(schema, name)))


@pytest.mark.parametrize("name", ["tables_1", "pipeline_1", "anything"])
def test_a_schema_that_is_ours_to_duckdb_keeps_no_other_table_from_starting(name: str) -> None:
    hostile = in_schema("Headrace", name)
    plans = TablePlans(
        DuckDBConfig(database="shop.duckdb"), DestinationContext(1, MemoryStore(), None, (ORDERS, hostile))
    )
    assert plans.of(ORDERS).name == ("public", "orders")
    with pytest.raises(ConfigError, match=f"table Headrace.{name} would be in the schema headrace"):
        plans.of(hostile)


def test_a_table_does_not_move_into_our_schema() -> None:
    plans = TablePlans(DuckDBConfig(database="shop.duckdb"), DestinationContext(1, MemoryStore(), None, (ORDERS,)))
    moved = replace(ORDERS, table=replace(ORDERS.table, name=TableName("Headrace", "quarantine_1")))
    with pytest.raises(ConfigError, match="would be in the schema headrace"):
        plans.name(moved, ("public", "orders"))
