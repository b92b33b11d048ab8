"""schema_change: two versions of a table, what differs, and whether existing rows can follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.events import Relation
from headrace.lsn import Lsn
from headrace.schema import (
    Column,
    PgType,
    ReplicaIdentity,
    ReplicatedTableSchema,
    ReplicationMask,
    TableName,
    TableSchema,
)
from headrace.schema_change import ChangeKind, SchemaChange, copy_reason, rows_rewritten, schema_change

INT4, INT8, TEXT = PgType(23, "int4"), PgType(20, "int8"), PgType(25, "text")
NUMERIC = PgType(1700, "numeric")
MOOD = PgType(20_000, "mood", "public", "e", members=("sad", "ok"))
PAIR = PgType(20_010, "pair", "public", "c", members=("x 23 -1",))
ID = Column("id", 1, INT4, nullable=False, key_position=1)
A = Column("a", 2, INT4)
B = Column("b", 3, TEXT)
HIDDEN = Column("hidden", 4, INT4)


def version(
    *columns: Column, hide: tuple[int, ...] = (4,), row_filter: str | None = None, **table: object
) -> ReplicatedTableSchema:
    identity = tuple(sorted(column.attnum for column in columns if column.key_position))
    settings: dict[str, object] = {"identity_attnums": identity, "name": TableName("public", "t")} | table
    schema = TableSchema(id=16_999, columns=columns, **settings)  # type: ignore[arg-type]
    sent = frozenset(column.attnum for column in columns if column.attnum not in hide)
    return ReplicatedTableSchema(schema, ReplicationMask(sent), row_filter)


OLD = version(ID, A, B, HIDDEN)


def change(*columns: Column, **more: object) -> SchemaChange:
    return schema_change(OLD, version(*columns, **more))  # type: ignore[arg-type]


def reason(old: ReplicatedTableSchema, new: ReplicatedTableSchema, rewritten: bool = False) -> str | None:
    return copy_reason(Relation(Lsn(1), Lsn(2), old, new, rewritten))


def test_nothing_differs() -> None:
    assert change(ID, A, B, HIDDEN) == SchemaChange()
    assert change(ID, A, B, HIDDEN).is_empty
    assert change(ID, A, B, HIDDEN).kinds() == frozenset()
    assert reason(OLD, OLD) is None


def test_comments_and_missing_values_do_not_count() -> None:
    assert change(ID, replace(A, comment="x", missing="1"), B, HIDDEN, comment="y").is_empty


def test_a_column_is_added_and_another_dropped_though_the_name_is_the_same() -> None:
    again = replace(A, attnum=5)
    found = change(ID, B, HIDDEN, again)
    assert (found.added, found.dropped, found.renamed) == ((again,), (A,), ())
    assert found.kinds() == {ChangeKind.ADD_COLUMN, ChangeKind.DROP_COLUMN}
    assert not found.is_empty


def test_names_that_two_columns_exchange() -> None:
    first, second = replace(A, name="b"), replace(B, name="a")
    found = change(ID, first, second, HIDDEN)
    assert found.renamed == ((A, first), (B, second))
    assert found.kinds() == {ChangeKind.RENAME_COLUMN}


def test_several_things_at_once_of_one_column() -> None:
    new = Column("z", 2, INT8, nullable=False, default="0")
    found = change(ID, new, B, HIDDEN)
    assert found.renamed == found.retyped == found.nullability == found.defaults == ((A, new),)
    assert found.kinds() == {
        ChangeKind.RENAME_COLUMN, ChangeKind.CHANGE_TYPE, ChangeKind.CHANGE_NULLABILITY, ChangeKind.CHANGE_DEFAULT,
    }  # fmt: skip


@pytest.mark.parametrize("type_", [INT8, replace(MOOD, members=("sad",)), replace(PAIR, members=())])
def test_a_type_that_is_another_or_made_of_others(type_: PgType) -> None:
    old = version(ID, replace(A, type={INT8: INT4}.get(type_) or (MOOD if type_.kind == "e" else PAIR)))
    assert schema_change(old, version(ID, replace(A, type=type_))).kinds() == {ChangeKind.CHANGE_TYPE}


def test_a_typmod() -> None:
    found = schema_change(version(ID, replace(B, type=NUMERIC, typmod=10)), version(ID, replace(B, type=NUMERIC)))
    assert found.kinds() == {ChangeKind.CHANGE_TYPE}


def test_a_column_that_is_generated_no_more_has_another_default() -> None:
    assert schema_change(version(ID, replace(A, generated=True)), version(ID, A)).kinds() == {ChangeKind.CHANGE_DEFAULT}


def test_columns_that_the_publication_sends_or_no_longer_sends() -> None:
    found = change(ID, A, B, HIDDEN, hide=(3,))
    assert (found.shown, found.hidden, found.added, found.dropped) == ((HIDDEN,), (B,), (), ())
    assert found.kinds() == {ChangeKind.CHANGE_COLUMN_LIST}


def test_what_happens_to_columns_that_are_not_sent_does_not_count() -> None:
    assert change(ID, A, B, replace(HIDDEN, name="x", type=INT8)).is_empty
    assert change(ID, A, B).is_empty
    assert change(ID, A, B, HIDDEN, replace(A, name="new", attnum=7), hide=(4, 7)).is_empty


@pytest.mark.parametrize(
    "new",
    [
        version(replace(ID, key_position=None), A, B, HIDDEN),
        version(ID, replace(A, key_position=2), B, HIDDEN),
        version(ID, A, B, HIDDEN, replica_identity=ReplicaIdentity.FULL, identity_attnums=(1, 2, 3, 4)),
        version(ID, A, B, HIDDEN, replica_identity=ReplicaIdentity.NOTHING, identity_attnums=()),
        version(ID, A, B, HIDDEN, identity_attnums=()),
    ],
)
def test_another_key_or_replica_identity(new: ReplicatedTableSchema) -> None:
    assert schema_change(OLD, new).kinds() == {ChangeKind.CHANGE_KEY}
    assert reason(OLD, new) is None


def test_the_order_of_the_key_counts() -> None:
    one = version(ID, replace(A, key_position=2))
    two = version(replace(ID, key_position=2), replace(A, key_position=1))
    assert schema_change(one, two).key_changed


def test_a_key_column_that_is_sent_no_more_changes_the_key() -> None:
    found = schema_change(version(ID, A), version(ID, A, hide=(1,)))
    assert found.kinds() == {ChangeKind.CHANGE_KEY, ChangeKind.CHANGE_COLUMN_LIST}


def test_a_full_identity_grows_with_the_table_and_is_the_same_key() -> None:
    full = {"replica_identity": ReplicaIdentity.FULL}
    old = version(ID, A, identity_attnums=(1, 2), **full)  # type: ignore[arg-type]
    new = version(ID, A, B, identity_attnums=(1, 2, 3), **full)  # type: ignore[arg-type]
    assert schema_change(old, new).kinds() == {ChangeKind.ADD_COLUMN}


def test_table_row_filter_and_partitions() -> None:
    columns = (ID, A, B, HIDDEN)
    assert change(*columns, name=TableName("other", "t")).kinds() == {ChangeKind.RENAME_TABLE}
    assert change(*columns, row_filter="(a > 1)").kinds() == {ChangeKind.CHANGE_ROW_FILTER}
    assert change(*columns, leaves=(17_000,)).kinds() == {ChangeKind.CHANGE_PARTITIONS}


def test_two_tables_are_not_two_versions() -> None:
    other = replace(OLD, table=replace(OLD.table, id=1))
    with pytest.raises(ValueError, match=r"public\.t \(16999\) and public\.t \(1\) are two tables"):
        schema_change(OLD, other)


def test_the_first_version_follows_nothing() -> None:
    assert copy_reason(Relation(Lsn(1), Lsn(2), None, OLD, rewritten=True)) is None


def test_what_altering_the_table_is_enough_for() -> None:
    added = Column("n", 5, TEXT, default="'x'", missing="x", nullable=False)
    new = version(
        replace(ID, type=INT8, name="key"), replace(A, nullable=False, default="7"), HIDDEN, added,
        name=TableName("other", "u"),
    )  # fmt: skip
    assert reason(OLD, new) is None


TOTAL = Column("total", 2, NUMERIC, (10 << 16 | 2) + 4)


@pytest.mark.parametrize(
    ("old", "new", "rewritten", "sentence"),
    [
        (version(ID, TOTAL), version(ID, replace(TOTAL, type=TEXT, typmod=-1)), False,
         "column total changed from numeric(10,2) to text: existing values cannot be converted in place"),
        (version(ID, replace(A, type=MOOD)), version(ID, replace(A, type=replace(MOOD, members=("x", "ok")))), False,
         "column a has another type mood than before: existing values cannot be converted in place"),
        (version(ID), version(ID, replace(A, generated=True)), False,
         "column a is generated: the values that existing rows have in it are not known"),
        (version(ID, leaves=(9,)), version(ID, replace(A, default="7"), leaves=(9,)), False,
         "column a has a default: what existing rows of the partitions have in it is not known"),
        (version(ID, A, hide=(2,)), version(ID, A), False,
         "column a is published anew: the values that existing rows have in it are not known"),
        (version(ID), version(ID, row_filter="(id > 1)"), False,
         "the publication's row filter changed: which rows it shows now, no change tells"),
        (version(ID, leaves=(9,)), version(ID, leaves=()), True,
         "a partition was attached, detached or dropped: its rows come and go without a change"),
        (version(ID), version(ID, A), True,
         "the source rewrote the existing rows, and what they are now no change tells"),
    ],
)  # fmt: skip
def test_why_a_table_is_copied_again(
    old: ReplicatedTableSchema, new: ReplicatedTableSchema, rewritten: bool, sentence: str
) -> None:
    assert reason(old, new, rewritten) == sentence


def test_an_empty_partition_needs_no_copy() -> None:
    assert reason(version(ID, leaves=(9,)), version(ID, leaves=(9, 10))) is None
    # Its value is known where the catalog has it.
    assert reason(version(ID, leaves=(9,)), version(ID, replace(A, default="7", missing="7"), leaves=(9,))) is None


def rewritten(
    old: ReplicatedTableSchema,
    new: ReplicatedTableSchema,
    rewrite: int = 0,
    plain: bool = True,
    tag: str = "ALTER TABLE",
) -> bool:
    return rows_rewritten(old, new, rewrite=rewrite, plain=plain, tag=tag)


WIDE = version(ID, replace(A, type=INT8), B, HIDDEN)


def test_a_type_change_is_followed_if_it_is_provably_the_same() -> None:
    assert not rewritten(OLD, WIDE, 4)
    # A USING clause may have been at work.
    assert rewritten(OLD, WIDE, 4, plain=False)
    # The type is the same, so a USING clause was.
    assert rewritten(OLD, OLD, 4)
    assert rewritten(OLD, version(ID, replace(A, type=TEXT), B, HIDDEN), 4)
    # Narrower types are not followed even where Postgres had nothing to rewrite.
    assert rewritten(OLD, version(ID, replace(A, type=TEXT), B, HIDDEN), 0)


def test_without_a_rewrite_no_value_changed_whatever_the_statement() -> None:
    old, new = version(ID, replace(B, type=PgType(1043, "varchar"), typmod=9)), version(ID, B)
    assert not rewritten(old, new, 0, plain=False)


def test_a_rewrite_for_a_column_that_is_not_sent_is_none_of_ours() -> None:
    hidden = version(ID, A, B, replace(HIDDEN, type=TEXT))
    assert not rewritten(OLD, hidden, 4)
    assert rewritten(OLD, hidden, 4, plain=False)
    added = version(ID, A, B, HIDDEN, Column("n", 5, INT4, default="random()"), hide=(4, 5))
    assert not rewritten(OLD, added, 2)


def test_a_volatile_default_fills_existing_rows() -> None:
    new = version(ID, A, B, HIDDEN, Column("n", 5, INT4, default="random()"))
    assert rewritten(OLD, new, 2)
    # A domain's default fills them too, and the column has none.
    assert rewritten(OLD, version(ID, A, B, HIDDEN, Column("n", 5, INT4)), 2)
    assert not rewritten(OLD, new, 0)


def test_a_generated_column_is_computed_anew() -> None:
    old = version(ID, replace(A, generated=True))
    assert rewritten(old, old, 2)


@pytest.mark.parametrize("bit", [1, 4, 8])
def test_any_rewrite_forgets_what_an_added_column_showed(bit: int) -> None:
    wide = (ID, replace(A, type=INT8), B, HIDDEN)
    assert rewritten(OLD, version(*wide, Column("n", 5, INT4, default="7")), bit)
    assert not rewritten(OLD, version(*wide, Column("n", 5, INT4)), bit)


@pytest.mark.parametrize("bit", [1, 8])
def test_a_rewrite_for_the_sake_of_storage_changes_no_value(bit: int) -> None:
    assert not rewritten(OLD, OLD, bit, plain=False)


def test_labels_and_attributes() -> None:
    old = version(ID, replace(A, type=MOOD))
    assert not rewritten(old, version(ID, replace(A, type=replace(MOOD, members=("sad", "ok", "x")))), tag="ALTER TYPE")
    assert rewritten(old, version(ID, replace(A, type=replace(MOOD, members=("sad", "x")))), tag="ALTER TYPE")
    assert not rewritten(old, old, tag="ALTER TYPE")
    pair = version(ID, replace(A, type=PAIR))
    assert rewritten(
        pair, version(ID, replace(A, type=replace(PAIR, members=("x 23 -1", "y 23 -1")))), tag="ALTER TYPE"
    )


@pytest.mark.parametrize(
    "type_",
    [PAIR, PgType(20_011, "_pair", element=PAIR), PgType(20_012, "d", kind="d", base=PAIR),
     PgType(20_013, "moodrange", "public", "r")],
)  # fmt: skip
def test_a_type_that_was_altered_invisibly(type_: PgType) -> None:
    pair = version(ID, replace(A, type=type_))
    assert rewritten(pair, pair, tag="ALTER TYPE")
    assert not rewritten(pair, pair, tag="ALTER TABLE")


def test_partitions_that_come_and_go() -> None:
    one, two = version(ID, leaves=(9,)), version(ID, leaves=(9, 10))
    assert not rewritten(one, two, tag="CREATE TABLE")
    assert rewritten(one, two, tag="ALTER TABLE")
    assert rewritten(two, one, tag="DROP TABLE")
    assert rewritten(two, one, tag="CREATE TABLE")


def test_the_partitions_of_a_table_may_have_been_rewritten_unseen() -> None:
    old, new = version(ID, A, leaves=(9,)), version(ID, replace(A, type=INT8), leaves=(9,))
    assert rewritten(old, new, 0, plain=False)
    assert not rewritten(old, new, 4)
