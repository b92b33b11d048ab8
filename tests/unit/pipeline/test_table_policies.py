"""pipeline.table_policies: settings of single tables, through renames."""

from __future__ import annotations

from headrace.config.schema_changes import SchemaChangesConfig
from headrace.pipeline.table_policies import TablePolicies
from headrace.schema import TableName, TableSchema
from headrace.schema_policy import SchemaPolicy

SETTINGS = SchemaChangesConfig.model_validate(
    {"tables": {"public.first": {"policy": "lenient"}, "public.third": {"policy": "ignore"}}}
)


def named(name: str, table_id: int = 1) -> TableSchema:
    return TableSchema(table_id, TableName("public", name), ())


def test_settings_stay_a_tables_own_unless_its_new_name_has_some() -> None:
    policies = TablePolicies(SETTINGS)
    names = ("first", "second", "third", "fourth", "first")
    found = [policies.of(named(name)).policy.value for name in names]
    assert found == ["lenient", "lenient", "ignore", "ignore", "lenient"]
    assert policies.of(named("second", 2)).policy is SchemaPolicy.EVOLVE


def test_a_name_that_was_stored_counts_as_one_that_it_had() -> None:
    policies = TablePolicies(SETTINGS)
    policies.heard_of(1, "public.first")
    assert policies.of(named("second")).policy is SchemaPolicy.LENIENT
    assert policies.heard_of(1, "public.second") == ["public.first", "public.second"]
    policies.forget(1)
    assert policies.of(named("second")).policy is SchemaPolicy.EVOLVE
