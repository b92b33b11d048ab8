"""What a destination's table becomes when its source changes, by policy.

Under `evolve` it is what the source is. Under the others it goes a way of its own, so it is a second schema beside the
source's: a `Target`. It is kept with the version of the source that it was made for, and so outlives its policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .errors import SchemaChangeRefused
from .schema import Column, ReplicatedTableSchema, ReplicationMask
from .schema_change import ChangeKind, SchemaChange, schema_change
from .type_change import TypeChange, type_change

__all__ = ["SchemaPolicies", "SchemaPolicy", "Target", "advanced"]

_OWN_ATTNUMS = 10_000
"""Columns of a target that are no longer, or not only, a column of the source have numbers from here on."""


class SchemaPolicy(StrEnum):
    """How a destination takes a change of its source."""

    EVOLVE = "evolve"
    LENIENT = "lenient"
    IGNORE = "ignore"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SchemaPolicies:
    """The policy of a table, kind by kind."""

    policy: SchemaPolicy = SchemaPolicy.EVOLVE
    allow: frozenset[ChangeKind] = frozenset()
    """Followed as under evolve, whatever the policy."""
    deny: frozenset[ChangeKind] = frozenset()
    """Refused, whatever the policy."""

    def of(self, kind: ChangeKind) -> SchemaPolicy:
        if kind in self.deny:
            return SchemaPolicy.ERROR
        return SchemaPolicy.EVOLVE if kind in self.allow else self.policy

    @property
    def mirrors(self) -> bool:
        """Whether the destination's table is always what the source's is."""
        return self.policy in (SchemaPolicy.EVOLVE, SchemaPolicy.ERROR)

    @property
    def follows_all(self) -> bool:
        """Whether it does not matter what has changed."""
        return all(self.of(kind) is SchemaPolicy.EVOLVE for kind in ChangeKind)

    def refused(self, kinds: Iterable[ChangeKind]) -> str:
        """Names of the kinds that stop the table, for people; empty: none of them does."""
        return ", ".join(sorted(kind.value for kind in kinds if self.of(kind) is SchemaPolicy.ERROR))


@dataclass(frozen=True, slots=True)
class Target:
    """The table at the destination, and which source column each of its columns is filled from."""

    schema: ReplicatedTableSchema
    sources: Mapping[int, int] = field(default_factory=dict)
    """Attnum here to attnum at the source. A column that is not in it is NULL from now on."""

    @classmethod
    def same(cls, schema: ReplicatedTableSchema) -> Target:
        return cls(schema, {column.attnum: column.attnum for column in schema.columns})

    def is_same(self, schema: ReplicatedTableSchema) -> bool:
        """Whether rows of the source go in as they are."""
        return self.schema == schema and all(here == there for here, there in self.sources.items())

    def has_own(self, schema: ReplicatedTableSchema) -> bool:
        """Whether it has other columns, or another name, than the source: a copy would make them the source's."""
        named = [(self.sources.get(column.attnum), column.name) for column in self.schema.columns]
        source = [(column.attnum, column.name) for column in schema.columns]
        return self.schema.table.name != schema.table.name or {*named} != {*source}


def advanced(
    policies: SchemaPolicies, target: Target, old: ReplicatedTableSchema, new: ReplicatedTableSchema
) -> Target:
    """The target when its source goes from `old` to `new`. Raises SchemaChangeRefused, naming what is refused."""
    change = schema_change(old, new)
    refused = policies.refused(change.kinds())
    if refused:
        raise _refused(new, f"the policy refuses {refused}")
    if policies.mirrors:
        return Target.same(new)
    columns = _Columns(policies, target, change)
    unlike = [column.name for column in new.found_by if column.attnum in columns.unlike]
    if unlike:
        raise _refused(new, f"rows are found by {', '.join(unlike)}, and existing ones do not have its values there")
    return _settled(columns.columns, policies, target, new)


class _Columns:
    """The target's columns and their sources, changed kind by kind."""

    def __init__(self, policies: SchemaPolicies, target: Target, change: SchemaChange) -> None:
        self._policies = policies
        self.unlike: set[int] = set()
        """Columns of the source, by attnum, whose values existing rows do not have where new ones get them."""
        self.columns: list[tuple[Column, int | None]] = [
            (column, target.sources.get(column.attnum)) for column in target.schema.columns
        ]
        for column in (*change.dropped, *change.hidden):
            self._drop(column, ChangeKind.DROP_COLUMN if column in change.dropped else ChangeKind.CHANGE_COLUMN_LIST)
        for was, now in change.retyped:
            self._retype(was, now)
        for was, now in change.renamed:
            self._rename(was, now)
        for column in (*change.added, *change.shown):
            kind = ChangeKind.ADD_COLUMN if column in change.added else ChangeKind.CHANGE_COLUMN_LIST
            if policies.of(kind) is not SchemaPolicy.IGNORE:
                self._add(column)
        for _, now in change.nullability:
            self._change(now.attnum, nullable=True)

    def _drop(self, column: Column, kind: ChangeKind) -> None:
        if self._policies.of(kind) is SchemaPolicy.EVOLVE:
            self.columns = [(c, source) for c, source in self.columns if source != column.attnum]
        else:
            self._detach(column.attnum)

    def _detach(self, source: int) -> None:
        """The column stays, and nothing fills it."""
        self.columns = [(replace(c, nullable=True), None) if s == source else (c, s) for c, s in self.columns]

    def _retype(self, was: Column, now: Column) -> None:
        policy = self._policies.of(ChangeKind.CHANGE_TYPE)
        how = type_change(was, now)
        if policy is SchemaPolicy.LENIENT and how is TypeChange.OTHER:
            msg = f"column {now.name} changed its type to one that does not hold what it holds"
            raise SchemaChangeRefused(msg)
        if policy is SchemaPolicy.IGNORE and how is not TypeChange.SAME:
            msg = f"column {now.name} changed its type, which cannot be ignored: its values do not fit any more"
            raise SchemaChangeRefused(msg)
        self._change(now.attnum, type=now.type, typmod=now.typmod)

    def _rename(self, was: Column, now: Column) -> None:
        policy = self._policies.of(ChangeKind.RENAME_COLUMN)
        if policy is SchemaPolicy.EVOLVE:
            self._change(now.attnum, name=now.name)
        elif policy is SchemaPolicy.LENIENT:
            self._detach(now.attnum)
            self._add(now)
            self.unlike.add(now.attnum)

    def _add(self, column: Column) -> None:
        """A column of the same name that nothing fills is filled again, if it has the same type."""
        for index, (known, source) in enumerate(self.columns):
            if known.name == column.name and source is None:
                if type_change(known, column) is not TypeChange.SAME:
                    msg = f"column {column.name} was added with another type than the one kept of this name"
                    raise SchemaChangeRefused(msg)
                self.columns[index] = (known, column.attnum)
                self.unlike.add(column.attnum)
                return
        taken = {known.attnum for known, _ in self.columns}
        free = column.attnum if column.attnum not in taken else max(_OWN_ATTNUMS, *taken) + 1
        self.columns.append((replace(column, attnum=free), column.attnum))

    def _change(self, source: int, **changes: object) -> None:
        self.columns = [
            (replace(c, **changes), s) if s == source else (c, s)  # type: ignore[arg-type]
            for c, s in self.columns
        ]


def _settled(
    columns: list[tuple[Column, int | None]], policies: SchemaPolicies, target: Target, new: ReplicatedTableSchema
) -> Target:
    """The target with these columns, and with the identity that the source has: changes are told by it."""
    here = {source: column.attnum for column, source in columns if source is not None}
    lacking = [column.name for column in new.identity if column.attnum not in here]
    if lacking:
        raise _refused(new, f"rows are identified by {', '.join(lacking)}, which the destination does not have")
    positions = {here[c.attnum]: c.key_position for c in new.columns if c.attnum in here}
    renames = policies.of(ChangeKind.RENAME_TABLE) is not SchemaPolicy.IGNORE
    table = replace(
        new.table,
        name=new.table.name if renames else target.schema.table.name,
        columns=tuple(
            replace(c, key_position=positions.get(c.attnum))
            for c, _ in sorted(columns, key=lambda pair: pair[0].attnum)
        ),
        identity_attnums=tuple(sorted(here[a] for a in new.table.identity_attnums if a in here)),
    )
    schema = replace(new, table=table, mask=ReplicationMask.everything(table))
    return Target(schema, {attnum: source for source, attnum in here.items()})


def _refused(schema: ReplicatedTableSchema, why: str) -> SchemaChangeRefused:
    return SchemaChangeRefused(f"the schema of table {schema.table.name} changed: {why}")
