"""Settings of how a destination takes schema changes of its source."""

from __future__ import annotations

from pydantic import Field

from ..schema_change import ChangeKind
from ..schema_policy import SchemaPolicies, SchemaPolicy
from .section import Section

__all__ = ["SchemaChangesConfig", "TableSchemaChangesConfig"]

_KINDS = ", ".join(kind.value for kind in ChangeKind)


class TableSchemaChangesConfig(Section):
    """The same for one table; what is left out is as for all."""

    policy: SchemaPolicy | None = Field(default=None, description="As above, for this table. Default: as for all.")
    allow: tuple[ChangeKind, ...] | None = Field(default=None, description="As above. Default: as for all.")
    deny: tuple[ChangeKind, ...] | None = Field(default=None, description="As above. Default: as for all.")


class SchemaChangesConfig(Section):
    """What happens to the destination's table when the source's is altered."""

    policy: SchemaPolicy = Field(
        default=SchemaPolicy.EVOLVE,
        description="evolve: the destination's table is altered likewise, or copied again where existing rows could "
        "not be known otherwise; lenient: columns are added and widened, never dropped: one that is dropped or renamed "
        "stays, and is NULL from then on; ignore: the table stays as it is, and only the columns it has are written; "
        "error: the table stops until somebody decides. Default evolve: the destination equals the source.",
    )
    allow: tuple[ChangeKind, ...] = Field(
        default=(),
        description=f"Kinds of change that are followed as under evolve whatever the policy: {_KINDS}. A table that "
        "has kept columns is not copied again for them: it stops. Default none.",
    )
    deny: tuple[ChangeKind, ...] = Field(
        default=(), description="Kinds of change that stop the table whatever the policy. Default none."
    )
    tables: dict[str, TableSchemaChangesConfig] = Field(
        default={},
        description="Other settings for single tables, by schema.table. They stay a table's own when it is renamed, "
        "unless there are some for its new name. Default none.",
    )

    def of(self, *names: str) -> SchemaPolicies:
        """What holds for a table: the name that it has, and names that it had, the latest first."""
        own = next((self.tables[name] for name in names if name in self.tables), TableSchemaChangesConfig())
        return SchemaPolicies(
            self.policy if own.policy is None else own.policy,
            frozenset(self.allow if own.allow is None else own.allow),
            frozenset(self.deny if own.deny is None else own.deny),
        )
