"""The wrapper: a destination that is given less than the source has, and knows nothing of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Optional

import pyarrow as pa

from ...config.transforms import TableTransformsConfig, TransformsConfig
from ...errors import ConfigError
from ...events import Relation, Truncate
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema
from ..batch import Changes, EventBatch, Step, TableBatch
from ..contract import Destination, DestinationContext, Durability
from ..rows import Rows
from .batches import changes_schema, transform_changes, transform_rejected, transform_rows
from .events import transform_events
from .sql import check_installed
from .table_transform import Chosen, TableTransform, chosen, table_transform

__all__ = ["Transformed"]

# In the old spelling: evaluated at run time, and Python 3.10 must read it.
_Version = tuple[ReplicatedTableSchema, tuple[Optional[str], ...]]  # noqa: UP045


class Transformed:
    """Wraps a destination; innermost, so that all else around it works on what it gets."""

    def __init__(self, inner: Destination, config: TransformsConfig) -> None:
        self.name = inner.name
        self.whole_batches = inner.whole_batches
        self._inner, self._config = inner, config
        self._lock = threading.Lock()
        self._settings: dict[int, tuple[TableTransformsConfig, Chosen] | None] = {}
        self._found: dict[_Version, TableTransform | None] = {}

    def startup(self, context: DestinationContext) -> None:
        published = {str(schema.table.name) for schema in context.tables}
        for name in self._config.tables:
            if name not in published:
                msg = f"transforms.tables names {name}, which is not in the publication"
                raise ConfigError(msg, hint="correct the name, publish the table, or remove the setting")
        if any(table.needs_sql for table in self._config.tables.values()):
            check_installed()
        for schema in context.tables:
            self._find(schema)
        self._inner.startup(replace(context, tables=tuple(self._target(schema) for schema in context.tables)))

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        return self._inner.applied_lsn(self._target(schema))

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        return self._inner.copied_parts(self._target(schema))

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        self._inner.drop_table_for_copy(self._target(schema))

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self._inner.drop_table(self._target(schema))

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        transform = self._find(schema)
        if transform is None:
            return self._inner.write_table_rows(schema, rows, part)
        after = pa.schema(transform.fields(list(rows.arrow_schema)))
        given = rows.mapped(partial(transform_rows, transform, after), after, partial(transform_rejected, transform))
        return self._inner.write_table_rows(transform.target, given, part)

    def follows(self, relation: Relation) -> bool:
        return self._inner.follows(self._relation(relation))

    def write_events(self, batch: EventBatch) -> Durability:
        tables = tuple(self._table(table) for table in batch.tables)
        events = partial(transform_events, self._find)
        return self._inner.write_events(EventBatch(batch.end, tables, lambda: events(batch.events())))

    def flush(self) -> None:
        self._inner.flush()

    def shutdown(self) -> None:
        self._inner.shutdown()

    def _table(self, table: TableBatch) -> TableBatch:
        return TableBatch(self._target(table.schema), table.start, tuple(self._step(step) for step in table.steps))

    def _step(self, step: Step) -> Step:
        if isinstance(step, Relation):
            return self._relation(step)
        if isinstance(step, Truncate):
            return replace(step, schemas=tuple(self._target(schema) for schema in step.schemas))
        transform = self._find(step.schema)
        if transform is None:
            return step
        after = changes_schema(transform, step.rows.arrow_schema)
        rows = step.rows.mapped(
            partial(transform_changes, transform, after), after, partial(transform_rejected, transform)
        )
        return Changes(transform.target, rows)

    def _relation(self, relation: Relation) -> Relation:
        old = None if relation.old is None else self._target(relation.old)
        return replace(relation, old=old, new=self._target(relation.new))

    def _target(self, schema: ReplicatedTableSchema) -> ReplicatedTableSchema:
        transform = self._find(schema)
        return schema if transform is None else transform.target

    def _find(self, schema: ReplicatedTableSchema) -> TableTransform | None:
        """What happens to this version of a table; None: nothing."""
        # What older rows show in a column makes no other schema, but counts here.
        version = (schema, tuple(column.missing for column in schema.columns))
        with self._lock:
            if version not in self._found:
                self._found[version] = self._made(schema)
            return self._found[version]

    def _made(self, schema: ReplicatedTableSchema) -> TableTransform | None:
        """By the table's OID, once it was seen under the name that settings give: renamed, it stays what it is."""
        if schema.table.id not in self._settings:
            config = self._config.tables.get(str(schema.table.name))
            self._settings[schema.table.id] = None if config is None else (config, chosen(config, schema))
        settings = self._settings[schema.table.id]
        if settings is None:
            return None
        salt = "" if self._config.salt is None else self._config.salt.get_secret_value()
        return table_transform(settings[0], salt, settings[1], schema)
