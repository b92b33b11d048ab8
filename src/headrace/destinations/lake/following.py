"""How a table follows its source: what is to be altered for another version of it, or for a new copy."""

from __future__ import annotations

import json

import pyarrow as pa

from ...config.table_mode import TableMode
from ...errors import ConfigError
from ...events import Relation
from ...lsn import INVALID_LSN, Lsn
from ...pgtypes.registry import conversion_for
from ...schema import ReplicatedTableSchema
from ...schema_change import copy_reason
from ..change_log import BEFORE, OP
from ..soft_delete import DELETED
from ..table_plans import check_columns, table_columns
from .contract import LakeTable
from .evolution.alteration import Alteration, CannotAlter
from .evolution.column_record import COLUMNS, ColumnRecord
from .evolution.planning import Definition, altered_log, altered_table, replaced_table
from .evolution.wanted import WantedColumn, wanted_columns
from .plan import TablePlan
from .record import COPY_AGAIN, SCHEMA_VERSION, SOURCE, TABLE_ID
from .schema import iceberg_schema, partition_spec, sort_order

__all__ = ["alteration", "definition", "follows", "is_replaceable", "replacement"]

# More than any table has: the ids of a table that is only thought of.
_MANY = 1 << 30
# Rows are written anew by one thread while the table's stream waits; a copy of more is read by many tasks.
_MOST_FILLED = 5_000_000


def definition(table: LakeTable, known: ReplicatedTableSchema) -> Definition:
    """What the table looks like. `known` is the source as it was when the table was made without a record of it."""
    schema, recorded = json.loads(table.layout.schema_json), table.properties().get(COLUMNS)
    record = ColumnRecord.by_name(schema, known.columns, BEFORE) if recorded is None else ColumnRecord.read(recorded)
    return Definition(table.layout.schema_json, table.last_field_id(), record, table.pinned_fields())


def alteration(plan: TablePlan, there: Definition, new: ReplicatedTableSchema, version: Lsn) -> Alteration:
    """Make the table look like `new`, which is in force from `version` on. Raises CannotAlter."""
    check_columns(new, plan.mode)
    wanted, properties = _wanted(plan, new), _properties(new, version)
    if plan.mode is TableMode.CHANGELOG:
        return altered_log(there, wanted, properties)
    # A deleted row that is kept may have no value in what is the key by now.
    return altered_table(there, wanted, properties, may_require=plan.mode is TableMode.MIRROR)


def replacement(
    plan: TablePlan, there: Definition, new: ReplicatedTableSchema, version: Lsn = INVALID_LSN
) -> Alteration:
    """Make the table look like `new` for a new copy: all rows are replaced at the same time, or, in a log, it is added
    as of `version`. Raises CannotAlter.
    """
    check_columns(new, plan.mode)
    wanted, properties = _wanted(plan, new), {**_properties(new, version), COPY_AGAIN: None}
    if plan.mode is TableMode.CHANGELOG:
        return altered_log(there, wanted, properties)
    return replaced_table(there, wanted, properties)


def is_replaceable(plan: TablePlan, table: LakeTable, new: ReplicatedTableSchema) -> bool:
    """Whether a new copy can take the table's place in one commit: the settings still make the same of it.

    A change log goes on, however it is laid out: what it has cannot be had again.
    """
    if _mode(table) is not plan.mode:
        return False
    if plan.mode is TableMode.CHANGELOG:
        return not table.record().is_blank and _table_id(table, new) == new.table.id
    there = definition(table, new)
    try:
        altered = replacement(plan, there, new)
    except CannotAlter:
        return False
    return _is_laid_out_alike(plan, table, altered, new)


def follows(plan: TablePlan, table: LakeTable | None, relation: Relation) -> bool:
    """Whether a table of current rows can be altered, and its rows are right then. None: there is no table yet."""
    if relation.rewritten or copy_reason(relation) is not None:
        return False
    try:
        # What came before it in the same batch is not in the table yet.
        if relation.old is not None:
            alteration(plan, _as_created(plan, relation.old), relation.new, relation.commit_lsn)
        if table is not None:
            there = definition(table, relation.old or relation.new)
            altered = alteration(plan, there, relation.new, relation.commit_lsn)
            return not altered.filled or _rows(table) <= _MOST_FILLED
    except CannotAlter:
        return False
    return True


def _table_id(table: LakeTable, new: ReplicatedTableSchema) -> int:
    """Whose table it is: perhaps that of one that had the name of `new` before."""
    return int(table.properties().get(TABLE_ID, new.table.id))


def _rows(table: LakeTable) -> int:
    return sum(file.live_records for file in table.files().live.values())


def _as_created(plan: TablePlan, source: ReplicatedTableSchema) -> Definition:
    rows = pa.schema(
        [(column.name, conversion_for(column.type, column.typmod).arrow_type) for column in source.columns]
    )
    schema = iceberg_schema(source, table_columns(rows, plan.mode), plan.key(source), plan.settings.json_as)
    return Definition(json.dumps(schema), _MANY, ColumnRecord.by_name(schema, source.columns, BEFORE))


def _wanted(plan: TablePlan, new: ReplicatedTableSchema) -> tuple[WantedColumn, ...]:
    return wanted_columns(new, plan.key(new) or (), plan.settings.json_as, shows_defaults=plan.shows_defaults)


def _properties(new: ReplicatedTableSchema, version: Lsn) -> dict[str, str | None]:
    return {
        SOURCE: str(new.table.name),
        TABLE_ID: str(new.table.id),
        SCHEMA_VERSION: str(version),
        "comment": new.table.comment or None,
    }


def _mode(table: LakeTable) -> TableMode:
    names = {field["name"] for field in json.loads(table.layout.schema_json)["fields"]}
    if OP in names:
        return TableMode.CHANGELOG
    return TableMode.SOFT_DELETE if DELETED in names else TableMode.MIRROR


def _is_laid_out_alike(plan: TablePlan, table: LakeTable, altered: Alteration, new: ReplicatedTableSchema) -> bool:
    """Whether partitions and order are those that the settings ask for. Settings that name a column as it was called
    before are still those the table was made with.
    """
    schema, name = json.loads(altered.schema_json), str(new.table.name)
    try:
        spec = partition_spec(plan.partition_by, schema, name)["fields"]
        order = sort_order(plan.sort_by, schema, name)["fields"]
    except ConfigError:
        return True
    there = json.loads(table.layout.spec_json)["fields"]
    found = [(field["transform"], field["source-id"]) for field in there]
    ids = {field["name"]: field["id"] for field in json.loads(table.layout.schema_json)["fields"]}
    sorted_by = [(ids[column], descending) for column, descending in table.layout.sort_by]
    return [(field["transform"], field["source-id"]) for field in spec] == found and [
        (field["source-id"], field["direction"] == "desc") for field in order
    ] == sorted_by
