"""What happens to one version of a table: decided once, by attnum where columns are renamed, and pickled to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import pyarrow as pa

from ...config.transforms import MaskConfig, MaskKind, TableTransformsConfig
from ...errors import ConfigError, ProtocolError
from ...pgtypes.registry import builtin_type, conversion_for
from ...schema import Column, ReplicaIdentity, ReplicatedTableSchema, ReplicationMask
from .sql import checked_filter, evaluate, hash_of, hash_parameters

__all__ = ["Chosen", "TableTransform", "chosen", "row_schema", "table_transform"]

_TEXT = 25


@dataclass(frozen=True, slots=True)
class Chosen:
    """The columns that settings name, as the published table has them: a renamed column stays what it is."""

    excluded: frozenset[int]
    masked: Mapping[int, MaskConfig]


@dataclass(frozen=True, slots=True)
class TableTransform:
    """From rows of `source` to rows of `target`. Positions are those of the source's columns."""

    source: ReplicatedTableSchema
    target: ReplicatedTableSchema
    kept: tuple[int, ...]
    masks: Mapping[int, MaskConfig]
    fixed: Mapping[int, pa.Scalar]
    condition: str | None
    decided_by: frozenset[str]
    """The columns that the condition names."""
    salt: str
    """Of hashes. It travels to tasks, and is in no `repr`."""

    def __repr__(self) -> str:
        return f"TableTransform({self.source.table.name})"

    def hash_parameters(self, positions: Iterable[int]) -> list[str | bytes]:
        """List the parameters of `sql.hash_of` for the columns at these positions."""
        domains = [str(self.masks[i].domain) for i in positions]
        return [parameter for domain in domains for parameter in hash_parameters(self.salt, domain)]

    @property
    def hidden(self) -> frozenset[str]:
        """The columns whose values go nowhere."""
        columns = self.source.columns
        return frozenset(c.name for i, c in enumerate(columns) if i not in self.kept or i in self.masks)

    def fields(self, given: Sequence[pa.Field]) -> list[pa.Field]:
        """The target's fields, for rows of the source with these."""
        fields = []
        for i in self.kept:
            mask = self.masks.get(i)
            field = given[i] if mask is None else given[i].with_nullable(True)
            fields.append(field.with_type(pa.string()) if mask is not None and mask.kind is MaskKind.HASH else field)
        return fields

    @property
    def hides_key(self) -> bool:
        return any(column.name in self.hidden for column in (*self.source.identity, *self.source.table.key))


def row_schema(schema: ReplicatedTableSchema) -> pa.Schema:
    """The Arrow types of the table's columns."""
    return pa.schema([pa.field(c.name, conversion_for(c.type, c.typmod).arrow_type) for c in schema.columns])


def chosen(config: TableTransformsConfig, schema: ReplicatedTableSchema) -> Chosen:
    """Raises ConfigError for columns that the table does not have: a typing error must not let values through."""
    table, by_name = schema.table.name, {column.name: column for column in schema.columns}
    for setting, names in (("exclude", config.columns.exclude), ("mask", config.columns.mask)):
        for name in names:
            if name not in by_name:
                raise ConfigError(
                    f'transforms.tables."{table}".columns.{setting} names {name}, which the table does not have',
                    hint=_advice(name, by_name),
                )
    masked = {by_name[name].attnum: _with_domain(mask, name) for name, mask in config.columns.mask.items()}
    return Chosen(frozenset(by_name[name].attnum for name in config.columns.exclude), masked)


def _with_domain(mask: MaskConfig, name: str) -> MaskConfig:
    """Set the domain of a hash to the column's configured name, which a later rename does not change."""
    return mask if mask.domain is not None else mask.model_copy(update={"domain": name})


def _advice(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else "correct the name; a column that was dropped needs no setting"


def table_transform(
    config: TableTransformsConfig, salt: str, by_attnum: Chosen, schema: ReplicatedTableSchema
) -> TableTransform:
    """For one version of the table. Raises ConfigError for what cannot be done to it."""
    masks, excluded = {}, set()
    for i, column in enumerate(schema.columns):
        mask = by_attnum.masked.get(column.attnum)
        if mask is None and column.name in config.columns.mask:
            mask = _with_domain(config.columns.mask[column.name], column.name)
        if column.attnum in by_attnum.excluded or column.name in config.columns.exclude:
            excluded.add(i)
        elif mask is not None:
            masks[i] = mask
    _require_key(schema, masks, excluded)
    kept = tuple(i for i in range(len(schema.columns)) if i not in excluded)
    fixed = {i: _fixed(schema, schema.columns[i], mask) for i, mask in masks.items() if mask.kind is MaskKind.FIXED}
    named = frozenset[str]()
    if config.filter is not None:
        named = checked_filter(config.filter, row_schema(schema), str(schema.table.name))
    target = _target(schema, masks, excluded, salt)
    return TableTransform(schema, target, kept, masks, fixed, config.filter, named, salt)


def _require_key(schema: ReplicatedTableSchema, masks: Mapping[int, MaskConfig], excluded: set[int]) -> None:
    """Rows must still be told apart: of a key's columns each has a value, equal for equal ones."""
    full = schema.table.replica_identity is ReplicaIdentity.FULL
    key = {column.attnum for column in (schema.table.key if full else (*schema.identity, *schema.table.key))}
    for i, column in enumerate(schema.columns):
        mask = masks.get(i)
        if column.attnum in key and (i in excluded or (mask is not None and mask.kind is not MaskKind.HASH)):
            name = schema.table.name
            raise ConfigError(
                f"column {column.name} of table {name} is part of its key: it cannot be excluded, nor masked so that "
                "rows are no longer told apart",
                hint="mask it with kind hash, which keeps equal values equal",
            )


def _fixed(schema: ReplicatedTableSchema, column: Column, mask: MaskConfig) -> pa.Scalar:
    try:
        converted = conversion_for(column.type, column.typmod).from_text(pa.array([mask.value], pa.string()))
    except ProtocolError:
        value = pa.scalar(None)
    else:
        value = converted.values[0]
    if not value.is_valid:
        msg = f"the fixed value for column {column.name} of table {schema.table.name} is no {column.type.name}"
        raise ConfigError(msg, hint="write it as Postgres prints a value of this type")
    return value


def _hashed(column: Column, mask: MaskConfig, salt: str) -> str | None:
    """What rows older than the column show of it, where it is hashed."""
    if column.missing is None:
        return None
    shown = conversion_for(column.type, column.typmod).from_text(pa.array([column.missing], pa.string())).values
    batch = pa.RecordBatch.from_arrays([shown], names=[column.name])
    (hashed,) = evaluate(batch, [hash_of(column.name)], hash_parameters(salt, str(mask.domain)))
    value: str | None = hashed[0].as_py()
    return value


def _target(
    schema: ReplicatedTableSchema, masks: Mapping[int, MaskConfig], excluded: set[int], salt: str
) -> ReplicatedTableSchema:
    text = builtin_type(_TEXT)
    assert text is not None
    published = {column.attnum: i for i, column in enumerate(schema.columns)}
    shown = ReplicationMask(schema.mask.attnums - {schema.columns[i].attnum for i in excluded})
    columns = []
    for column in schema.table.columns:
        mask = masks.get(published.get(column.attnum, -1))
        if column not in shown:
            # Destinations may keep the definition: what older rows have in the column, and new ones may, is hidden too.
            columns.append(replace(column, missing=None, default=None))
        elif mask is None:
            columns.append(column)
        elif mask.kind is MaskKind.HASH:
            columns.append(replace(column, type=text, typmod=-1, missing=_hashed(column, mask, salt), default=None))
        else:
            columns.append(replace(column, nullable=True, missing=mask.value, default=None))
    return replace(schema, table=replace(schema.table, columns=tuple(columns)), mask=shown)
