"""Follows a table from one schema version to the next, by what the stream shows of it.

With the event trigger a message holds the table's whole catalog entry, at its place in the stream. Without it the
Relation message before a change shows names and types only; the rest is looked up in the catalog as it is by now, which
may be further ahead. Where existing rows cannot be known from that, the table is copied again: never a guess. Where a
copy would lose what only the destination has, the table stops instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import SchemaChangeRefused, TableSchemaChanged
from ..events import Relation
from ..pgoutput import messages as m
from ..pgoutput.columnar import Emitted
from ..pgoutput.schema_marks import RelationMark
from ..postgres.ddl_messages import parse_ddl
from ..postgres.relation_resolution import CatalogEvidence, describes, resolve_relation
from ..postgres.source.message_key import MessageVerifier
from ..remedies import RESYNC
from ..schema import ReplicatedTableSchema, ReplicationMask, TableSchema
from ..schema_change import copied_for, copy_reason, rows_rewritten, schema_change
from ..schema_policy import SchemaPolicies, SchemaPolicy, Target, advanced

__all__ = ["ColumnListChanged", "Followed", "SchemaFollower", "Version"]


class ColumnListChanged(TableSchemaChanged):
    """The publication sends other columns, or may do so: who wrote before and commits later still has those of before.

    Rows of such a transaction must not come behind the copy.
    """


@dataclass(frozen=True, slots=True)
class Version:
    """A table at the source, and what it is at the destination."""

    schema: ReplicatedTableSchema
    target: Target


@dataclass(frozen=True, slots=True)
class Followed:
    """The next version, and what the destination has to do for it: perhaps nothing."""

    version: Version
    step: Relation | None


class SchemaFollower:
    """Says what a mark in the stream means for a table. Stateless; used by several threads.

    Its methods are given the version in force, and the one in force before the transaction: what a transaction does and
    undoes is nothing. They return None if nothing changed that concerns us. They raise TableSchemaChanged where the
    table must be copied again, SchemaChangeRefused where the policy does not allow the change.
    """

    def __init__(
        self,
        look_up: Callable[[int], TableSchema | None],
        follows: Callable[[Relation], bool],
        policies: Callable[[TableSchema], SchemaPolicies] = lambda _: SchemaPolicies(),
        *,
        verifier: MessageVerifier,
    ) -> None:
        self._look_up = look_up
        """The catalog's entry of a table as it is now; None: there is no such table any more."""
        self._follows = follows
        """Whether the destination can alter its table so."""
        self._policies = policies
        self._verifier = verifier

    def of_message(self, version: Version, before: Version, emitted: Emitted) -> Followed | None:
        """What a message of the event trigger tells. One that somebody else wrote tells nothing."""
        table = version.schema.table
        if not self._verifier.accepts(table.id, str(table.name), emitted):
            return None
        message = parse_ddl(emitted.message.content)
        if message.table is None:
            # Dropped: no change follows, and the publication, which is looked at beside the stream, has it no more.
            return None
        schema = version.schema
        told = message.table if message.locked else _unlocked(schema.table, message.table, message.tag)
        table = told.with_text_of(schema.table)
        new = replace(schema, table=table, mask=_carried(schema, table))
        rewritten = rows_rewritten(schema, new, rewrite=message.rewrite, plain=message.plain, tag=message.tag)
        if new == schema and not rewritten:
            return None
        relation = Relation(emitted.start_lsn, emitted.commit_lsn, schema, new, rewritten)
        return self._followed(version, before, relation, copy_reason(relation))

    def of_relation(self, version: Version, before: Version, mark: RelationMark) -> Followed | None:
        """What a Relation message tells that a change stands under."""
        schema = version.schema
        if describes(mark.relation, schema):
            return None
        found = self._look_up(schema.table.id)
        now = None if found is None else found.with_text_of(schema.table)
        named = _named_as_known(mark.relation, schema, now)
        if describes(named, schema):
            return None
        resolved = resolve_relation(schema, named, now, _evidence(schema.table, now))
        if resolved.schema == schema and resolved.copy_reason is None:
            return None
        # Another storage than the one known is a reason for a copy, which finds out what it is then.
        table = replace(resolved.schema.table, natts=resolved.natts, storage=schema.table.storage)
        new = replace(resolved.schema, table=table)
        relation = Relation(mark.start_lsn, mark.commit_lsn, schema, new)
        if not resolved.certain:
            raise self._uncertain(version, before, relation, resolved.copy_reason)
        return self._followed(version, before, relation, resolved.copy_reason or copy_reason(relation))

    def _uncertain(
        self, version: Version, before: Version, relation: Relation, problem: str | None
    ) -> TableSchemaChanged | SchemaChangeRefused:
        """What to raise where it is not known what has changed.

        A copy is right where anything may change. A log of changes it would begin anew.
        """
        step = replace(relation, old=version.target.schema, rewritten=True)
        msg = f"the columns of table {relation.new.table.name} changed"
        if self._policies(before.schema.table).follows_all and not self._follows(step):
            return ColumnListChanged(msg, detail=problem)
        hint = f"copy it again: {RESYNC}; event triggers tell of such changes: headrace source install PIPELINE.YAML"
        return SchemaChangeRefused(f"{msg}, and how is not known: {problem}", hint=hint)

    def _followed(self, version: Version, before: Version, relation: Relation, problem: str | None) -> Followed:
        # By the name of before: a table that is renamed has its settings under that.
        policies = self._policies(before.schema.table)
        target = advanced(policies, before.target, before.schema, relation.new)
        change = schema_change(version.schema, relation.new)
        # Without the trigger, a table that is stored elsewhere may just have been truncated.
        kinds = copied_for(change, rewritten=relation.rewritten or (problem is not None and change.is_empty))
        if policies.refused(kinds):
            msg = f"the rows of table {relation.new.table.name} changed: the policy refuses {policies.refused(kinds)}"
            raise SchemaChangeRefused(msg)
        _require_columns(target)
        allowed = bool(kinds) and all(policies.of(kind) is SchemaPolicy.EVOLVE for kind in kinds)
        copies = policies.mirrors or allowed
        if not copies:
            # A copy would not make it equal to the source, only lose what it has kept.
            problem = None
        new = Version(relation.new, target)
        if target.schema == version.target.schema and problem is None:
            return Followed(new, None)
        step = replace(relation, old=version.target.schema, new=target.schema, rewritten=problem is not None)
        if self._follows(step):
            return Followed(new, step)
        msg = f"the columns of table {relation.new.table.name} changed"
        if not copies:
            raise SchemaChangeRefused(f"{msg}, and the destination cannot alter its table so")
        if target.has_own(relation.new):
            raise SchemaChangeRefused(f"{msg}, and a copy of it would lose the columns that the destination has kept")
        error = ColumnListChanged if change.shown or change.hidden else TableSchemaChanged
        raise error(msg, detail=problem or "the destination cannot alter its table so")


def _unlocked(known: TableSchema, told: TableSchema, tag: str) -> TableSchema:
    """Return a known table with what a command did that did not lock it: to types, its schema's name, and partitions.

    All else that differs is what other transactions did, which have committed before, or will do so.
    """
    types = {column.type.oid: column.type for column in told.columns}
    columns = tuple(replace(column, type=types.get(column.type.oid, column.type)) for column in known.columns)
    name = replace(known.name, schema=told.name.schema) if tag == "ALTER SCHEMA" else known.name
    return replace(known, name=name, columns=columns, leaves=told.leaves)


def _require_columns(target: Target) -> None:
    """Raise TableSchemaChanged for a table without columns: destinations could not keep how many rows it has."""
    if not target.schema.columns:
        msg = f"table {target.schema.table.name} has no columns any more"
        raise TableSchemaChanged(msg, detail="it is copied again once it has one")


def _named_as_known(relation: m.Relation, schema: ReplicatedTableSchema, now: TableSchema | None) -> m.Relation:
    """The relation, under the name that is known where the catalog has that one too.

    ALTER SCHEMA waits for no writer: one that wrote before and commits later brings the former name. Postgres 14 and 15
    go on with it.
    """
    name = schema.table.name
    return (
        replace(relation, namespace=name.schema, name=name.name) if now is not None and now.name == name else relation
    )


def _evidence(before: TableSchema, now: TableSchema | None) -> CatalogEvidence:
    if now is None:
        return CatalogEvidence(before.natts)
    same_storage = before.storage == now.storage if before.storage and now.storage else None
    return CatalogEvidence(before.natts, now.natts or None, same_storage)


def _carried(schema: ReplicatedTableSchema, new: TableSchema) -> ReplicationMask:
    """What is published of the new columns, until a Relation message shows it.

    Without a column list all of them; with one, those that are listed already. Generated columns only if others are.
    A store of before has no word of a list that names all there are.
    """
    old = schema.table
    before = {column.attnum for column in old.columns}
    listed = schema.listed or any(not column.generated and column not in schema.mask for column in old.columns)
    generated = any(column.generated and column in schema.mask for column in old.columns)
    fresh = {
        column.attnum
        for column in new.columns
        if column.attnum not in before and not listed and (generated or not column.generated)
    }
    return ReplicationMask(frozenset(schema.mask.attnums | fresh) & {column.attnum for column in new.columns})
