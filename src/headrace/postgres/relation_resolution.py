"""A table's version from a Relation message and the catalog, where no DDL message tells it.

The catalog shows the table as it is now, which may be further ahead than the message. What stays open is not guessed:
the table is then to be copied again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..pgoutput import messages as m
from ..pgtypes.registry import builtin_type
from ..schema import Column, PgType, ReplicaIdentity, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema
from ..schema_change import change_reason, schema_change
from ..type_change import TypeChange, type_change, type_text
from .relation_alignment import Alignment, Known, align

__all__ = ["CatalogEvidence", "Resolved", "describes", "resolve_relation"]


@dataclass(frozen=True, slots=True)
class CatalogEvidence:
    """What the catalog can tell beside the two versions. Each has a value that means: not known."""

    natts_before: int = 0
    """`pg_class.relnatts` when the version before was read, or what `Resolved.natts` said of it."""
    natts_now: int | None = None
    """`pg_class.relnatts` now."""
    same_storage: bool | None = None
    """Whether `pg_class.relfilenode` is what it was at the version before: then no row was rewritten in between.

    If it is not, a USING clause may have changed values though no type changed.
    """


@dataclass(frozen=True, slots=True)
class Resolved:
    schema: ReplicatedTableSchema
    """The table from the message on; a guess if it is not `certain`."""
    certain: bool
    """Whether it is known which of its columns are which, and by which key rows were told apart."""
    copy_reason: str | None
    """Why the table must be copied again, in a sentence for people; None if altering it is enough."""
    natts: int
    """For the next `CatalogEvidence.natts_before`."""


_NO_EVIDENCE = CatalogEvidence()


def describes(relation: m.Relation, schema: ReplicatedTableSchema) -> bool:
    """Whether a Relation message says what is known already."""
    known = [(column.name, column.type.oid, column.typmod) for column in schema.columns]
    found = [(column.name, column.type_oid, column.typmod) for column in relation.columns]
    flagged = {column.name for column in relation.columns if column.key}
    # A partitioned table's name may be an older one.
    name = schema.table.name if schema.table.leaves else TableName(relation.namespace or "pg_catalog", relation.name)
    return schema.table.name == name and known == found and flagged == {column.name for column in schema.identity}


def resolve_relation(
    previous: ReplicatedTableSchema,
    relation: m.Relation,
    now: TableSchema | None,
    evidence: CatalogEvidence = _NO_EVIDENCE,
) -> Resolved:
    """Make the version that a Relation message begins.

    Args:
        previous: The version in force before the message, known exactly.
        relation: The message.
        now: What the catalog says of the table at any time since; None if it is gone.
        evidence: What else the catalog says.
    """
    known = _known(previous, relation, now, evidence)
    alignment = align(relation.columns, known)
    schema = _schema(previous, relation, now, known, alignment)
    natts = max([known.natts_before, *alignment.attnums])
    reason = next(_reasons(previous, schema, now, alignment, evidence), None)
    return Resolved(schema, alignment.certain and _is_key_told(previous, schema), reason, natts)


def _known(
    previous: ReplicatedTableSchema, relation: m.Relation, now: TableSchema | None, evidence: CatalogEvidence
) -> Known:
    before = {column.attnum: column for column in previous.table.columns}
    current = {column.attnum: column for column in now.columns} if now else {}
    listed = any(c not in previous.mask for c in before.values() if not c.generated)
    generated = [c in previous.mask for c in before.values() if c.generated]
    names = {column.name for column in relation.columns}
    return Known(
        before=before,
        sent_before=previous.mask.attnums & before.keys(),
        now=current,
        new_are_sent=not listed,
        generated_are_sent=any(generated) or any(c.generated and c.name in names for c in current.values()),
        natts_before=max([evidence.natts_before, *before]),
        natts_now=evidence.natts_now,
    )


def _schema(
    previous: ReplicatedTableSchema, relation: m.Relation, now: TableSchema | None, known: Known, alignment: Alignment
) -> ReplicatedTableSchema:
    sent = {
        attnum: _column(column, attnum, known)
        for attnum, column in zip(alignment.attnums, relation.columns, strict=True)
    }
    # New columns that are not sent are kept in mind: should they be sent one day, they are not new.
    kept = known.before.keys() if known.new_are_sent else known.now.keys()
    hidden = {a: c for a, c in known.now.items() if a not in sent and (a in kept or c.generated)}
    columns = tuple(column for _, column in sorted((sent | hidden).items()))
    flagged = {a for a, column in zip(alignment.attnums, relation.columns, strict=True) if column.key}
    versions = [version for version in (now, previous.table) if version is not None]
    # A root that is renamed is not described again: its changes are those of partitions, which stayed as they were.
    name = versions[0].name if previous.table.leaves else TableName(relation.namespace or "pg_catalog", relation.name)
    table = TableSchema(
        relation.relation_id,
        name,
        _keyed(columns, _key(relation, flagged, set(sent), versions)),
        relation.replica_identity,
        _identity(relation, flagged, set(sent), columns, versions),
        (now or previous.table).comment,
        (now or previous.table).leaves,
    )
    return replace(previous, table=table, mask=ReplicationMask(frozenset(sent)))


def _column(column: m.RelationColumn, attnum: int, known: Known) -> Column:
    found = [side[attnum] for side in (known.now, known.before) if attnum in side]
    types = {c.type.oid: replace(c.type, as_text=False) for side in (known.before, known.now) for c in side.values()}
    type_ = next((c.type for c in found if c.type.oid == column.type_oid), None) or types.get(column.type_oid)
    type_ = type_ or builtin_type(column.type_oid) or PgType(column.type_oid, f"type {column.type_oid}", schema="")
    if not found:
        return Column(column.name, attnum, type_, column.typmod)
    # Where the catalog is ahead, a NULL may still come that it now forbids.
    ahead = (found[0].name, found[0].type.oid, found[0].typmod) != (column.name, column.type_oid, column.typmod)
    nullable = any(c.nullable for c in found) if ahead else found[0].nullable
    return replace(found[0], name=column.name, type=type_, typmod=column.typmod, nullable=nullable)


def _keyed(columns: tuple[Column, ...], key: list[int]) -> tuple[Column, ...]:
    positions = {attnum: position for position, attnum in enumerate(key, start=1)}
    return tuple(replace(column, key_position=positions.get(column.attnum)) for column in columns)


def _key(relation: m.Relation, flagged: set[int], sent: set[int], versions: list[TableSchema]) -> list[int]:
    """The primary key, in key order. The message flags its columns only where it is the replica identity."""
    for version in versions:
        key = [column.attnum for column in version.key]
        usable = key if version.identity_attnums or version.replica_identity is not ReplicaIdentity.DEFAULT else []
        if relation.replica_identity is not ReplicaIdentity.DEFAULT or set(usable) & sent == flagged:
            return key
    return sorted(flagged)


def _identity(
    relation: m.Relation, flagged: set[int], sent: set[int], columns: tuple[Column, ...], versions: list[TableSchema]
) -> tuple[int, ...]:
    if relation.replica_identity is ReplicaIdentity.FULL:
        return tuple(column.attnum for column in columns)
    for version in versions:
        same = version.replica_identity is relation.replica_identity
        # An identity over a column that came later is not the one of the message, whatever columns both have.
        there = {column.attnum for column in columns}.issuperset(version.identity_attnums)
        if same and there and set(version.identity_attnums) & sent == flagged:
            return version.identity_attnums
    return tuple(sorted(flagged))


def _reasons(
    previous: ReplicatedTableSchema,
    schema: ReplicatedTableSchema,
    now: TableSchema | None,
    alignment: Alignment,
    evidence: CatalogEvidence,
) -> Iterator[str]:
    if not alignment.certain:
        yield "the source has changed again since: which of its columns were which cannot be told"
    change = schema_change(previous, schema)
    reason = change_reason(previous, schema, change.leaves_changed)
    if reason is not None:
        yield reason
    if not _is_key_told(previous, schema):
        yield "the source has another primary key by now: which rows it told apart at that time is not known"
    if evidence.same_storage is False:
        yield "the source rewrote the table, and what existing rows are now no change tells"
    live = {column.attnum for column in now.columns} if now else set()
    kept_rows = evidence.same_storage is True and not previous.table.leaves
    for old, new in change.retyped:
        grown = type_change(old, new) is not TypeChange.OTHER
        # Labels that were added to an enum convert nothing; anything else may have had a USING clause.
        converted = (old.type.oid, old.typmod) != (new.type.oid, new.typmod)
        if converted and not (grown and kept_rows):
            yield f"column {new.name} changed from {type_text(old)} to {type_text(new)}: how, the source does not tell"
    for column in change.added:
        if column.attnum not in live or (not kept_rows and _may_be_filled(column)):
            yield f"column {column.name} may have been added with a default: what existing rows have in it is not known"


def _is_key_told(previous: ReplicatedTableSchema, schema: ReplicatedTableSchema) -> bool:
    """Whether the primary key, if rows are found by it, is the one at the message.

    Where more columns than those of the key identify a row, the message does not tell which are the key's. By one that
    came later, several rows of that time would be taken for one.
    """
    table, identity = schema.table, {column.attnum for column in schema.identity}
    key = [column.attnum for column in table.key]
    if table.replica_identity is ReplicaIdentity.DEFAULT or not key or not identity.issuperset(key):
        return True
    return key == [column.attnum for column in previous.table.key]


def _may_be_filled(column: Column) -> bool:
    """Whether existing rows may have something in an added column that `missing` does not say.

    A column that must not be NULL is an identity, if it has no default; a domain may have a default of its own.
    """
    filled = column.default is not None or not column.nullable or column.type.kind == "d"
    return filled and column.missing is None
