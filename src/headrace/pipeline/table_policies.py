"""Which policies hold for which table: those of a single table stay its own when it is renamed."""

from __future__ import annotations

import threading

from ..config.schema_changes import SchemaChangesConfig
from ..errors import SchemaChangeRefused
from ..remedies import RESYNC, ROLLBACK
from ..schema import ReplicatedTableSchema, TableSchema
from ..schema_policy import SchemaPolicies, Target

__all__ = ["TablePolicies"]


class TablePolicies:
    """Policies by table. Used by several threads."""

    def __init__(self, settings: SchemaChangesConfig) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._names: dict[int, list[str]] = {}
        """By OID, in the order in which they were heard of."""

    def of(self, table: TableSchema) -> SchemaPolicies:
        """What holds for a table under this name, or under one that it had, if this has no settings."""
        name = str(table.name)
        former = [other for other in self.heard_of(table.id, name) if other != name]
        return self._settings.of(name, *reversed(former))

    def check(self, schema: ReplicatedTableSchema, target: Target) -> None:
        """Raise SchemaChangeRefused if the table went a way of its own, and is to look like its source by now."""
        if target.is_same(schema) or not self.of(schema.table).mirrors:
            return
        name = schema.table.name
        msg = f"table {name} followed its source by another policy, and its columns are no longer the source's"
        raise SchemaChangeRefused(
            msg, hint=f"copy it again: {RESYNC}; or set the policy back, restart and run: {ROLLBACK}"
        )

    def heard_of(self, table_id: int, name: str) -> list[str]:
        """The table has or had this name. Returns all of its names, the first it was known under first."""
        with self._lock:
            names = self._names.setdefault(table_id, [])
            if name not in names:
                names.append(name)
            return list(names)

    def forget(self, table_id: int) -> None:
        with self._lock:
            self._names.pop(table_id, None)
