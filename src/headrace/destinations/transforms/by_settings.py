"""Transforms that settings spell out: columns excluded or masked, rows filtered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from ...config.transforms import TableTransformsConfig, TransformsConfig
from ...errors import ConfigError
from ...schema import ReplicatedTableSchema
from ..contract import DestinationContext
from ..rows import Rows
from .batches import changes_schema, transform_changes, transform_rows
from .contract import RowEvent, Transform
from .events import transform_events
from .rejected import rejected_changes, rejected_rows
from .sql import check_installed
from .table_transform import Chosen, TableTransform, chosen, table_transform

__all__ = ["SettingsTransforms"]


class SettingsTransforms:
    """Implements `Transforms`."""

    def __init__(self, config: TransformsConfig) -> None:
        self._config = config
        self._settings: dict[int, tuple[TableTransformsConfig, Chosen] | None] = {}

    def startup(self, context: DestinationContext) -> None:
        published = {str(schema.table.name) for schema in context.tables}
        for name in self._config.tables:
            if name not in published:
                msg = f"transforms.tables names {name}, which is not in the publication"
                raise ConfigError(msg, hint="correct the name, publish the table, or remove the setting")
        if any(table.needs_sql for table in self._config.tables.values()):
            check_installed()

    def of(self, schema: ReplicatedTableSchema) -> Transform | None:
        """By the table's OID, once it was seen under the name that settings give: renamed, it stays what it is."""
        if schema.table.id not in self._settings:
            config = self._config.tables.get(str(schema.table.name))
            known = config is not None and config.in_words
            self._settings[schema.table.id] = (config, chosen(config, schema)) if config and known else None
        settings = self._settings[schema.table.id]
        if settings is None:
            return None
        salt = "" if self._config.salt is None else self._config.salt.get_secret_value()
        return _SettingsTransform(table_transform(settings[0], salt, settings[1], schema))


class _SettingsTransform:
    """Implements `Transform`."""

    def __init__(self, table: TableTransform) -> None:
        self._table = table

    @property
    def target(self) -> ReplicatedTableSchema:
        return self._table.target

    def rows(self, rows: Rows) -> Rows:
        after = pa.schema(self._table.fields(list(rows.arrow_schema)))
        return rows.mapped(partial(transform_rows, self._table, after), after, partial(rejected_rows, self._table))

    def changes(self, rows: Rows) -> Rows:
        after = changes_schema(self._table, rows.arrow_schema)
        function = partial(transform_changes, self._table, after)
        return rows.mapped(function, after, partial(rejected_changes, self._table))

    def events(self, events: Sequence[RowEvent]) -> Sequence[RowEvent | None]:
        return transform_events(self._table, events)

    def follows(self, old: Transform | None) -> bool:
        """What older rows show of a masked column is in the target's schema."""
        del old
        return True
