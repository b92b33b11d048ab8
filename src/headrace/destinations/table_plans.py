"""What is decided about a table before it is written: its name, its mode, and the columns that mode adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa
import structlog

from ..config.table_destination import DestinationTableConfig, TableDestinationConfig
from ..config.table_mode import TableMode
from ..errors import ConfigError
from ..schema import ReplicatedTableSchema, TableName
from ..stores.contract import StateStore
from .change_log import change_log_schema
from .contract import DestinationContext
from .names import case_twins, destination_names, names_of
from .soft_delete import DELETED_FIELDS

__all__ = ["PlannedTable", "check_columns", "check_named", "former_names", "plan_tables", "table_columns", "told_apart"]

_log = structlog.get_logger("headrace.destinations")


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """One table's part of the settings."""

    name: tuple[str, ...]
    """Namespace and table."""
    mode: TableMode
    config: DestinationTableConfig | None
    """What it does differently; None: nothing."""


def former_names(store: StateStore, tables: Iterable[ReplicatedTableSchema]) -> dict[TableName, list[str]]:
    """The names under which tables were copied, by the names that they have now."""
    known = store.get_all_destination_metadata()
    copied = {table_id: [metadata.destination_table_id] for table_id, metadata in known.items()}
    return {schema.table.name: copied.get(schema.table.id, []) for schema in tables}


def plan_tables(
    settings: TableDestinationConfig, tables: Iterable[TableName], formerly: Mapping[TableName, Sequence[str]] = {}
) -> dict[TableName, PlannedTable]:
    """Plans by table. Raises ConfigError for names that collide.

    `formerly` are names that tables had before: settings under such a name are still theirs.
    """
    found = list(tables)
    configs = _configs(settings, found, formerly)
    named = {str(table): config.name for table, (_, config) in configs.items()}
    names = destination_names(found, settings.namespace, settings.table_name, named)
    return {
        table: PlannedTable(name, configs[table][1].mode or settings.mode, configs[table][1])
        if table in configs
        else PlannedTable(name, settings.mode, None)
        for table, name in names.items()
    }


def told_apart(
    settings: TableDestinationConfig, context: DestinationContext, formerly: Mapping[TableName, Sequence[str]]
) -> list[ReplicatedTableSchema]:
    """The published tables without those whose name here differs from another's in case only.

    Whoever asks for the plan of one that is left out gets the ConfigError of `plan_tables`: it is that table's alone.
    """
    sources = [schema.table.name for schema in context.tables]
    named = {str(table): config.name for table, (_, config) in _configs(settings, sources, formerly).items()}
    there = context.store.get_all_destination_metadata()
    known = {schema.table.name for schema in context.tables if schema.table.id in there}
    twins = case_twins(names_of(sources, settings.namespace, settings.table_name, named), known)
    for table in sorted(twins):
        hint = f'give it another name: destination.tables."{table}".name'
        _log.error("a table is left out: its name differs from another's in case only", table=str(table), hint=hint)
    return [schema for schema in context.tables if schema.table.name not in twins]


def check_named(
    settings: TableDestinationConfig, tables: Iterable[TableName], formerly: Mapping[TableName, Sequence[str]]
) -> None:
    """Raise ConfigError for settings of tables that are not there. For the start: later on, a table may leave."""
    found = list(tables)
    known = [str(table) for table in sorted(found)]
    unknown = settings.tables.keys() - {key for key, _ in _configs(settings, found, formerly).values()}
    for name in sorted(unknown):
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "remove the setting, or publish the table"
        raise ConfigError(f"destination.tables names {name}, which is not in the publication", hint=hint)


def _configs(
    settings: TableDestinationConfig, tables: Sequence[TableName], formerly: Mapping[TableName, Sequence[str]]
) -> dict[TableName, tuple[str, DestinationTableConfig]]:
    """The settings of single tables, and the name under which they are."""
    now, configs = {str(table) for table in tables}, {}
    for table in tables:
        keys = [str(table), *(name for name in formerly.get(table, ()) if name not in now)]
        key = next((key for key in keys if key in settings.tables), None)
        if key is not None:
            configs[table] = key, settings.tables[key]
    return configs


def table_columns(rows: pa.Schema, mode: TableMode) -> pa.Schema:
    """The columns of the destination's table, for source rows of this schema."""
    if mode is TableMode.CHANGELOG:
        return change_log_schema(rows)
    return pa.schema([*rows, *DELETED_FIELDS]) if mode is TableMode.SOFT_DELETE else rows


def check_columns(source: ReplicatedTableSchema, mode: TableMode) -> None:
    """Raise ConfigError for a column that is named like one of ours, by which the table tells what happened."""
    ours = {name.casefold() for name in table_columns(pa.schema([]), mode).names}
    for column in source.columns:
        if column.name.casefold() in ours:
            name = source.table.name
            raise ConfigError(
                f"table {name} has a column {column.name}, a name that mode {mode.value} needs for its own",
                hint="rename the column at the source, leave it out of the publication by a column list, or set "
                f'destination.tables."{name}".mode to mirror, which adds no columns',
            )
