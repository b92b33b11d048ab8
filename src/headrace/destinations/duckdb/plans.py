"""What is decided about the pipeline's tables by its settings: names and modes, through renames."""

from __future__ import annotations

import threading
from dataclasses import replace

from ...config.table_destination import OnTableRename, TableDestinationConfig
from ...errors import ConfigError
from ...schema import OWN_SCHEMA, ReplicatedTableSchema, TableName
from ..contract import DestinationContext
from ..names import destination_names
from ..table_plans import PlannedTable, check_columns, check_named, former_names, plan_tables, told_apart

__all__ = ["TablePlans", "check_table"]

_PARTS = 2


class TablePlans:
    """By the OID of the source. Calls come from many threads."""

    def __init__(self, settings: TableDestinationConfig, context: DestinationContext) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._formerly = former_names(context.store, context.tables)
        check_named(settings, self._formerly.keys(), self._formerly)
        tables = _outside_own_schema(told_apart(settings, context, self._formerly))
        plans = plan_tables(settings, [schema.table.name for schema in tables], self._formerly)
        for schema in tables:
            _checked(plans[schema.table.name], schema.table.name)
            if schema.columns:
                # One without columns fails by itself, and keeps no other table from starting.
                check_table(schema, plans[schema.table.name])
        self._sources = {schema.table.id: schema.table.name for schema in tables}
        self._plans = {schema.table.id: plans[schema.table.name] for schema in tables}

    def of(self, schema: ReplicatedTableSchema) -> PlannedTable:
        """Raises ConfigError if its name is another table's."""
        table_id, name = schema.table.id, schema.table.name
        with self._lock:
            if table_id not in self._plans:
                plans = plan_tables(self._settings, {*self._sources.values(), name}, self._formerly)
                self._plans[table_id] = _checked(plans[name], name)
                self._sources[table_id] = name
            return self._plans[table_id]

    def name(self, schema: ReplicatedTableSchema, now: tuple[str, str] | None) -> tuple[str, str]:
        """What the table is to be called; `now` is what it is called, if it is there."""
        plan, source = self.of(schema), schema.table.name
        with self._lock:
            before = self._sources[schema.table.id]
            if before != source:
                self._formerly[source] = [*self._formerly.pop(before, ()), str(before)]
                self._sources[schema.table.id] = source
        if plan.config is not None and plan.config.name is not None:
            return plan.name[0], plan.name[1]
        settings = self._settings
        if now is not None and settings.on_table_rename is OnTableRename.KEEP:
            return now
        name = destination_names([source], settings.namespace, settings.table_name, {})[source]
        namespace, table = _checked(replace(plan, name=name), source).name
        return namespace, table

    def forget(self, schema: ReplicatedTableSchema) -> None:
        with self._lock:
            self._plans.pop(schema.table.id, None)
            self._formerly.pop(self._sources.pop(schema.table.id, schema.table.name), None)


def _outside_own_schema(tables: list[ReplicatedTableSchema]) -> list[ReplicatedTableSchema]:
    """Return the tables without those of a source schema that DuckDB takes for ours: they fail alone, by `of`.

    Whoever may create a schema at the source could otherwise keep the whole pipeline from starting.
    """
    return [schema for schema in tables if schema.table.name.schema.casefold() != OWN_SCHEMA]


def _checked(plan: PlannedTable, source: TableName) -> PlannedTable:
    text = ".".join(plan.name)
    if len(plan.name) != _PARTS:
        msg = f"table {source} would be called {text}, and DuckDB has names of two parts: schema and table"
        raise ConfigError(msg, hint=f'set destination.namespace, or destination.tables."{source}".name, to one schema')
    if plan.name[0].casefold() == OWN_SCHEMA:
        msg = f"table {source} would be in the schema {OWN_SCHEMA}, which Headrace keeps for its own tables"
        raise ConfigError(msg, hint="set destination.namespace to another schema")
    return plan


def check_table(source: ReplicatedTableSchema, plan: PlannedTable) -> None:
    """Raise ConfigError for columns that no table of DuckDB can have."""
    check_columns(source, plan.mode)
    if not source.columns:
        msg = f"table {source.table.name} has no columns, and DuckDB has no such tables"
        raise ConfigError(msg, hint="leave the table out of the publication")
