"""What differs between two versions of a table, and whether the rows a destination has can follow by altering alone.

Columns are known by their attnum, and only what the publication shows counts. Postgres sends no rows when it rewrites a
table, so that must be told from the two versions and from what the DDL message says. Where it cannot be told, the table
is copied again: that is always right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag, StrEnum

from .events import Relation
from .schema import Column, PgType, ReplicaIdentity, ReplicatedTableSchema
from .type_change import TypeChange, type_change, type_differs, type_text

__all__ = [
    "ChangeKind",
    "ColumnChange",
    "Rewrite",
    "SchemaChange",
    "change_reason",
    "copied_for",
    "copy_reason",
    "has_types_of_users",
    "rows_rewritten",
    "schema_change",
]

_FIRST_OID_OF_USERS = 16_384

ColumnChange = tuple[Column, Column]
"""A column before and after."""


class ChangeKind(StrEnum):
    """The kinds of change that a policy may allow or deny."""

    ADD_COLUMN = "add_column"
    DROP_COLUMN = "drop_column"
    RENAME_COLUMN = "rename_column"
    CHANGE_TYPE = "change_type"
    CHANGE_NULLABILITY = "change_nullability"
    CHANGE_DEFAULT = "change_default"
    CHANGE_KEY = "change_key"
    RENAME_TABLE = "rename_table"
    CHANGE_COLUMN_LIST = "change_column_list"
    CHANGE_ROW_FILTER = "change_row_filter"
    CHANGE_PARTITIONS = "change_partitions"


class Rewrite(IntFlag):
    """Why Postgres rewrote a table: the bits of `pg_event_trigger_table_rewrite_reason()`."""

    PERSISTENCE = 1
    DEFAULT = 2
    COLUMN = 4
    ACCESS_METHOD = 8


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The difference. A column may be in several of the pairs: renamed and retyped, say."""

    added: tuple[Column, ...] = ()
    dropped: tuple[Column, ...] = ()
    shown: tuple[Column, ...] = ()
    """Columns that the table had before and the publication now sends."""
    hidden: tuple[Column, ...] = ()
    """Columns that the table still has and the publication no longer sends."""
    renamed: tuple[ColumnChange, ...] = ()
    retyped: tuple[ColumnChange, ...] = ()
    """Another type or typmod, or a type whose labels or attributes changed."""
    nullability: tuple[ColumnChange, ...] = ()
    defaults: tuple[ColumnChange, ...] = ()
    """Another default, or no longer (or newly) generated."""
    key_changed: bool = False
    """Another primary key or replica identity, or other columns of it that are sent."""
    table_renamed: bool = False
    """Another name or schema."""
    row_filter_changed: bool = False
    leaves_changed: bool = False

    @property
    def is_empty(self) -> bool:
        return self == _NOTHING

    def kinds(self) -> frozenset[ChangeKind]:
        return frozenset(self._kinds())

    def _kinds(self) -> Iterator[ChangeKind]:
        found: dict[ChangeKind, object] = {
            ChangeKind.ADD_COLUMN: self.added,
            ChangeKind.DROP_COLUMN: self.dropped,
            ChangeKind.RENAME_COLUMN: self.renamed,
            ChangeKind.CHANGE_TYPE: self.retyped,
            ChangeKind.CHANGE_NULLABILITY: self.nullability,
            ChangeKind.CHANGE_DEFAULT: self.defaults,
            ChangeKind.CHANGE_KEY: self.key_changed,
            ChangeKind.RENAME_TABLE: self.table_renamed,
            ChangeKind.CHANGE_COLUMN_LIST: self.shown or self.hidden,
            ChangeKind.CHANGE_ROW_FILTER: self.row_filter_changed,
            ChangeKind.CHANGE_PARTITIONS: self.leaves_changed,
        }
        return (kind for kind, differs in found.items() if differs)


_NOTHING = SchemaChange()
_COPYING = frozenset(
    {
        ChangeKind.ADD_COLUMN,
        ChangeKind.CHANGE_TYPE,
        ChangeKind.CHANGE_COLUMN_LIST,
        ChangeKind.CHANGE_ROW_FILTER,
        ChangeKind.CHANGE_PARTITIONS,
    }
)


def schema_change(old: ReplicatedTableSchema, new: ReplicatedTableSchema) -> SchemaChange:
    """The difference between two versions of one table. Raises ValueError for two tables: attnums are a table's own."""
    if old.table.id != new.table.id:
        msg = f"{old.table.name} ({old.table.id}) and {new.table.name} ({new.table.id}) are two tables"
        raise ValueError(msg)
    before, after = _by_attnum(old.columns), _by_attnum(new.columns)
    had, has = _by_attnum(old.table.columns), _by_attnum(new.table.columns)
    entered = [column for attnum, column in after.items() if attnum not in before]
    left = [column for attnum, column in before.items() if attnum not in after]
    kept = [(before[attnum], column) for attnum, column in after.items() if attnum in before]
    return SchemaChange(
        added=tuple(column for column in entered if column.attnum not in had),
        dropped=tuple(column for column in left if column.attnum not in has),
        shown=tuple(column for column in entered if column.attnum in had),
        hidden=tuple(column for column in left if column.attnum in has),
        renamed=tuple((was, is_) for was, is_ in kept if was.name != is_.name),
        retyped=tuple((was, is_) for was, is_ in kept if type_differs(was, is_)),
        nullability=tuple((was, is_) for was, is_ in kept if was.nullable != is_.nullable),
        defaults=tuple((was, is_) for was, is_ in kept if _default(was) != _default(is_)),
        key_changed=_keys(old) != _keys(new),
        table_renamed=old.table.name != new.table.name,
        row_filter_changed=old.row_filter != new.row_filter,
        leaves_changed=old.table.leaves != new.table.leaves,
    )


def copied_for(change: SchemaChange, *, rewritten: bool) -> frozenset[ChangeKind]:
    """Of the kinds of a change those for which existing rows may have to be copied again.

    Rows that the source rewrote for none of them have other values of the same types.
    """
    found = change.kinds() & _COPYING
    return found or frozenset({ChangeKind.CHANGE_TYPE} if rewritten else ())


def _by_attnum(columns: tuple[Column, ...]) -> dict[int, Column]:
    return {column.attnum: column for column in columns}


def _default(column: Column) -> tuple[str | None, bool]:
    return column.default, column.generated


def _keys(schema: ReplicatedTableSchema) -> tuple[object, ...]:
    key, identity = [column.attnum for column in schema.table.key], schema.table.identity_attnums
    # A full identity is every column there is: one that comes or goes changes no key.
    if schema.table.replica_identity is ReplicaIdentity.FULL:
        identity = ()
    sent = schema.mask.attnums.intersection(key) | schema.mask.attnums.intersection(identity)
    return schema.table.replica_identity, key, identity, sent


def copy_reason(relation: Relation) -> str | None:
    """Why the table must be copied again, in a sentence for people; None if altering it is enough."""
    return None if relation.old is None else change_reason(relation.old, relation.new, relation.rewritten)


def change_reason(old: ReplicatedTableSchema, new: ReplicatedTableSchema, rewritten: bool) -> str | None:
    """The same, of two versions and whether rows were rewritten between them."""
    change = schema_change(old, new)
    return next(_reasons(change, partitioned=bool(old.table.leaves), rewritten=rewritten), None)


def _reasons(change: SchemaChange, *, partitioned: bool, rewritten: bool) -> Iterator[str]:
    if change.row_filter_changed:
        yield "the publication's row filter changed: which rows it shows now, no change tells"
    if change.leaves_changed and rewritten:
        yield "a partition was attached, detached or dropped: its rows come and go without a change"
    for column in change.shown:
        yield f"column {column.name} is published anew: the values that existing rows have in it are not known"
    for old, new in change.retyped:
        if type_change(old, new) is TypeChange.OTHER:
            yield f"column {new.name} {_from_to(old, new)}: existing values cannot be converted in place"
    for column in change.added:
        if column.generated:
            yield f"column {column.name} is generated: the values that existing rows have in it are not known"
        elif partitioned and _filled(column):
            yield f"column {column.name} has a default: what existing rows of the partitions have in it is not known"
    if rewritten:
        yield "the source rewrote the existing rows, and what they are now no change tells"


def _from_to(old: Column, new: Column) -> str:
    if type_text(old) == type_text(new):
        return f"has another type {type_text(new)} than before"
    return f"changed from {type_text(old)} to {type_text(new)}"


def _filled(column: Column) -> bool:
    """Whether existing rows may show something else than NULL in an added column, and `missing` does not say what."""
    filled = column.default is not None or column.generated or not column.nullable or column.type.kind == "d"
    return filled and column.missing is None


def rows_rewritten(
    old: ReplicatedTableSchema, new: ReplicatedTableSchema, *, rewrite: int, plain: bool, tag: str
) -> bool:
    """Whether a command left existing rows with values that altering the table does not give.

    Args:
        old: The version before the command.
        new: The version after it.
        rewrite: Bits of `Rewrite`, of the table or of any of its partitions; 0 if nothing was rewritten.
        plain: Whether no USING clause can have been at work.
        tag: The command's tag.
    """
    change = schema_change(old, new)
    return (
        _leaves_came_or_went(old, new, tag)
        or _added_are_unknown(change, new, rewrite)
        or _types_are_unknown(old, new, change, plain=plain, rewrite=rewrite)
        or _hidden_in_types(new, change, tag)
    )


def _leaves_came_or_went(old: ReplicatedTableSchema, new: ReplicatedTableSchema, tag: str) -> bool:
    """CREATE TABLE makes empty partitions. All else may attach one with rows, or take rows away."""
    only_new = tag == "CREATE TABLE" and set(old.table.leaves) <= set(new.table.leaves)
    return old.table.leaves != new.table.leaves and not only_new


def _added_are_unknown(change: SchemaChange, new: ReplicatedTableSchema, rewrite: int) -> bool:
    """A rewrite fills in what added columns show, constants too, and `missing` no longer tells.

    One for a default's sake touches added and generated columns only.
    """
    if rewrite & Rewrite.DEFAULT:
        return bool(change.added) or any(column.generated for column in new.columns)
    return bool(rewrite) and any(_filled(column) for column in change.added)


def _types_are_unknown(
    old: ReplicatedTableSchema, new: ReplicatedTableSchema, change: SchemaChange, *, plain: bool, rewrite: int
) -> bool:
    if any(type_change(*pair) is TypeChange.OTHER for pair in change.retyped):
        return True
    if not rewrite & Rewrite.COLUMN:
        # A partitioned table has no storage of its own: whether its partitions were rewritten may not be known.
        return bool(old.table.leaves and change.retyped) and not plain
    return not plain or not _any_retyped(old, new)


def _any_retyped(old: ReplicatedTableSchema, new: ReplicatedTableSchema) -> bool:
    """Also of columns that are not published: one of those may be why the table was rewritten."""
    before = {column.attnum: column for column in old.table.columns}
    return any(column.attnum in before and type_differs(before[column.attnum], column) for column in new.table.columns)


def _hidden_in_types(new: ReplicatedTableSchema, change: SchemaChange, tag: str) -> bool:
    """ALTER TYPE without a visible difference: an attribute dropped and added again, or a type within a type."""
    return tag == "ALTER TYPE" and not change.retyped and any(_is_opaque(column.type) for column in new.columns)


def _is_opaque(type: PgType) -> bool:
    """Whether values are printed by types that `PgType` does not have: of attributes, of a range's bounds."""
    return _is_of_users(type, "cmr")


def has_types_of_users(schema: ReplicatedTableSchema) -> bool:
    """Whether ALTER TYPE can make its values print differently, without a lock that its writers would have to wait for.

    What such a writer has written before is sent as it was printed then, also when it commits later.
    """
    return any(_is_of_users(column.type, "cemr") for column in schema.columns)


def _is_of_users(type: PgType, kinds: str) -> bool:
    inner = type.element or type.base
    if inner is not None:
        return _is_of_users(inner, kinds)
    return type.oid >= _FIRST_OID_OF_USERS and type.kind in kinds
