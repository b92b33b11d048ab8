"""What a Python function makes of one version of a table: which columns, of which types, from which of the source's."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from ...errors import ConfigError, DestinationRejected
from ...pgtypes.registry import builtin_type, conversion_for
from ...remedies import RESYNC
from ...schema import Column, PgType, ReplicaIdentity, ReplicatedTableSchema, ReplicationMask

__all__ = ["OWN_PREFIX", "HookedTable", "Origin", "hooked_table"]

OWN_PREFIX = "_headrace"
"""How names begin that are ours."""

_FIRST_ATTNUM = 10_000
_ATTNUMS = 1 << 30
"""Of columns that the source does not have: above any that Postgres gives, and the same for the same name."""

_OIDS = {
    pa.bool_(): 16, pa.int8(): 21, pa.int16(): 21, pa.int32(): 23, pa.int64(): 20, pa.float32(): 700,
    pa.float64(): 701, pa.string(): 25, pa.large_string(): 25, pa.string_view(): 25, pa.binary(): 17,
    pa.large_binary(): 17, pa.date32(): 1082, pa.timestamp("us"): 1114, pa.timestamp("us", "UTC"): 1184,
}  # fmt: skip
_ARRAY_OIDS = {
    16: 1000, 21: 1005, 23: 1007, 20: 1016, 700: 1021, 701: 1022, 25: 1009, 17: 1001, 1082: 1182, 1114: 1115,
    1184: 1185, 1700: 1231,
}  # fmt: skip
_NUMERIC = 1700


@dataclass(frozen=True, slots=True)
class Origin:
    """From what a column is made."""

    same_as: str | None
    """The given column whose values it has, under whatever name."""
    reads: frozenset[str]
    """The given columns that its values were seen to depend on."""
    may_read: frozenset[str]
    """These, and others that cannot be ruled out."""


@dataclass(frozen=True)
class HookedTable:
    """From rows of `source` to rows of `target`, whose columns have these origins.

    What follows from them is asked for with every event, and worked out once.
    """

    source: ReplicatedTableSchema
    target: ReplicatedTableSchema
    origins: tuple[Origin, ...]
    made: pa.Schema
    """What the function returns, before its types become the target's."""
    indispensable: frozenset[str]
    """Columns without which the function fails."""

    @cached_property
    def fields(self) -> pa.Schema:
        """The target's rows in Arrow."""
        return pa.schema([pa.field(c.name, conversion_for(c.type, c.typmod).arrow_type) for c in self.target.columns])

    @property
    def whole_old_rows(self) -> bool:
        return self.source.table.replica_identity is ReplicaIdentity.FULL

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The source's columns by which rows are told apart, and which must stay as they are."""
        columns = self.source.table.key if self.whole_old_rows else (*self.source.identity, *self.source.table.key)
        replicated = {column.name for column in self.source.columns}
        return tuple(dict.fromkeys(column.name for column in columns if column.name in replicated))

    def staying(self, unsent: frozenset[str]) -> tuple[int, ...]:
        """Positions of the columns that stay as they are at the destination when an update did not send these.

        Raises DestinationRejected for a column that may be made of one of these and of others: it cannot be computed.
        """
        found = []
        for i, origin in enumerate(self.origins):
            if origin.reads and origin.reads <= unsent:
                found.append(i)
            elif origin.may_read & unsent:
                raise self._undecided(i, unsent)
        return tuple(found)

    def _undecided(self, position: int, unsent: frozenset[str]) -> DestinationRejected:
        name, missing = self.source.table.name, ", ".join(sorted(self.origins[position].may_read & unsent))
        return DestinationRejected(
            f"the transform of table {name} cannot compute column {self.target.columns[position].name}: "
            f"an update did not send the TOASTed value of {missing}",
            hint=f"ALTER TABLE {name.quoted} REPLICA IDENTITY FULL, then run: {RESYNC}; or let the function do without "
            f"{missing} in a batch, and leave out only what is made of it",
        )

    @cached_property
    def kept(self) -> Mapping[str, str]:
        """The source's columns that keep their values, with the name they go by."""
        pairs = zip(self.target.columns, self.origins, strict=True)
        attnums = {column.name: column.attnum for column in self.source.columns}
        return {o.same_as: c.name for c, o in pairs if o.same_as is not None and attnums[o.same_as] == c.attnum}

    def computed(self) -> dict[int, tuple[object, ...]]:
        """What decides the values of columns that are computed, by attnum."""
        types = {c.name: (c.attnum, conversion_for(c.type, c.typmod).arrow_type) for c in self.source.columns}
        pairs = zip(self.target.columns, self.origins, strict=True)
        return {
            c.attnum: (c.type.oid, c.typmod, frozenset(types[name] for name in o.may_read))
            for c, o in pairs
            if o.same_as is None
        }


def hooked_table(
    schema: ReplicatedTableSchema, made: pa.Schema, origins: tuple[Origin, ...], indispensable: frozenset[str]
) -> HookedTable:
    """For a function whose result has these columns. Raises ConfigError for what no destination could make of it."""
    name, fields = schema.table.name, list(made)
    ours = [field.name for field in fields if field.name.startswith(OWN_PREFIX)]
    if ours or not fields:
        msg = f"the transform of table {name} gives " + (f"a column the name {ours[0]}" if ours else "no columns")
        raise ConfigError(msg, hint=f"give each column a name that does not begin with {OWN_PREFIX}")
    columns = _columns(schema, fields, origins)
    identity = schema.table.identity_attnums
    if schema.table.replica_identity is ReplicaIdentity.FULL:
        # Of what identifies a row, however it is called now; not of columns that nothing fills any more.
        told = {column.name for column in schema.identity}
        pairs = zip(columns, origins, strict=True)
        identity = tuple(sorted(column.attnum for column, origin in pairs if origin.may_read <= told))
    table = replace(schema.table, columns=columns, identity_attnums=identity)
    target = replace(schema, table=table, mask=ReplicationMask.everything(table))
    found = HookedTable(schema, target, origins, made, indispensable)
    _require_key(found)
    return found


def _require_key(table: HookedTable) -> None:
    schema = table.source
    gone = [name for name in table.key if name not in table.kept]
    if gone:
        msg = f"the transform of table {schema.table.name} changes or drops {gone[0]}, which is part of its key"
        raise ConfigError(
            msg, hint="return the columns of the key as they are (they may be renamed); `mask` can hash them"
        )


def _columns(
    schema: ReplicatedTableSchema, fields: Sequence[pa.Field], origins: Sequence[Origin]
) -> tuple[Column, ...]:
    by_name = {column.name: column for column in schema.columns}
    # Of several columns with one origin the one that has its name is it, else the first.
    heirs: dict[str, str] = {}
    for field, origin in zip(fields, origins, strict=True):
        if origin.same_as is not None and (origin.same_as == field.name or origin.same_as not in heirs):
            heirs[origin.same_as] = field.name
    columns = []
    for field, origin in zip(fields, origins, strict=True):
        if origin.same_as is not None and heirs[origin.same_as] == field.name:
            columns.append(replace(by_name[origin.same_as], name=field.name))
            continue
        # A column that is computed in place of one of the source's stays that column.
        place = by_name.get(field.name) if field.name not in heirs else None
        type, typmod = _type(schema, field)
        attnum = _FIRST_ATTNUM + zlib.crc32(field.name.encode()) % _ATTNUMS if place is None else place.attnum
        columns.append(Column(field.name, attnum, type, typmod, comment=None if place is None else place.comment))
    return tuple(columns)


def _type(schema: ReplicatedTableSchema, field: pa.Field) -> tuple[PgType, int]:
    of = field.type.value_type if pa.types.is_list(field.type) else field.type
    oid, typmod = _OIDS.get(of), -1
    if pa.types.is_decimal(of):
        oid, typmod = _NUMERIC, ((of.precision << 16) | of.scale) + 4
    if oid is not None and pa.types.is_list(field.type):
        oid = _ARRAY_OIDS[oid]
    found = None if oid is None else builtin_type(oid)
    if found is None:
        msg = f"the transform of table {schema.table.name} gives column {field.name} the type {field.type}"
        raise ConfigError(msg, hint="cast it to a type that Postgres has; make JSON texts of structs and maps")
    return found, typmod
