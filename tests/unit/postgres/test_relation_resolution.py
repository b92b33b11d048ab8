"""postgres.relation_resolution: a version from a Relation message and a catalog that may be ahead of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.pgoutput import messages as m
from headrace.postgres.relation_resolution import CatalogEvidence, Resolved, resolve_relation
from headrace.schema import (
    Column,
    PgType,
    ReplicaIdentity,
    ReplicatedTableSchema,
    ReplicationMask,
    TableName,
    TableSchema,
)

INT4, INT8, TEXT, VARCHAR = PgType(23, "int4"), PgType(20, "int8"), PgType(25, "text"), PgType(1043, "varchar")
ID = Column("id", 1, INT4, nullable=False, key_position=1)
A = Column("a", 2, INT4)
B = Column("b", 3, TEXT)


def table(*columns: Column, identity: tuple[int, ...] = (1,), **more: object) -> TableSchema:
    name = TableName("public", "t")
    return TableSchema(id=16_999, name=name, columns=columns, identity_attnums=identity, **more)  # type: ignore[arg-type]


def sent(schema: TableSchema, *attnums: int) -> ReplicatedTableSchema:
    return ReplicatedTableSchema(schema, ReplicationMask(frozenset(attnums)), "(id > 0)", (77,))


def message(*columns: Column, key: tuple[str, ...] = ("id",), **more: object) -> m.Relation:
    described = tuple(m.RelationColumn(c.name in key, c.name, c.type.oid, c.typmod) for c in columns)
    settings: dict[str, object] = {"namespace": "public", "name": "t", "replica_identity": ReplicaIdentity.DEFAULT}
    return m.Relation(relation_id=16_999, columns=described, **settings | more)  # type: ignore[arg-type]


OLD = table(ID, A, B)
PREVIOUS = sent(OLD, 1, 2, 3)


def resolved(
    relation: m.Relation,
    now: TableSchema | None,
    evidence: CatalogEvidence | None = None,
    previous: ReplicatedTableSchema = PREVIOUS,
) -> Resolved:
    return resolve_relation(previous, relation, now, evidence or CatalogEvidence())


def exact(new: TableSchema, evidence: CatalogEvidence | None = None) -> Resolved:
    found = resolved(message(*new.columns), new, evidence)
    assert found.schema == replace(PREVIOUS, table=new, mask=ReplicationMask(frozenset(c.attnum for c in new.columns)))
    return found


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        table(ID, A, B, Column("new", 4, TEXT)),
        table(ID, A, B, Column("x", 4, TEXT), Column("y", 5, INT4)),
        table(ID, A, B, Column("new", 4, TEXT, nullable=False, default="'x'", missing="x")),
        table(ID, B),
        table(ID, replace(A, name="z"), B),
        table(ID, replace(A, name="b"), replace(B, name="a")),
        table(ID, replace(A, name="größe"), B, Column("a", 4, INT4)),
        table(ID, replace(A, nullable=False, default="7"), B),
        replace(OLD, name=TableName("public", "t")),
    ],
)
def test_a_catalog_that_is_not_ahead_gives_the_version_itself(new: TableSchema) -> None:
    assert exact(new).copy_reason is None


def test_one_gone_and_one_come_may_be_one_renamed() -> None:
    new = table(ID, A, Column("n", 4, TEXT))
    assert exact(new).copy_reason is not None


def test_what_stays_as_it_was() -> None:
    found = resolved(message(ID, A, B, namespace="other", name="u"), replace(OLD, name=TableName("other", "u")))
    assert found.schema.table.name == TableName("other", "u")
    assert (found.schema.row_filter, found.schema.entries) == ("(id > 0)", (77,))
    assert found.natts == 3


def test_an_attnum_that_was_given_before_leaves_no_doubt_if_that_is_known() -> None:
    new = table(ID, A, B, Column("new", 6, TEXT))
    assert exact(new, CatalogEvidence(natts_before=5)).copy_reason is None
    assert exact(new, CatalogEvidence(natts_before=5)).natts == 6
    found = exact(new)
    assert found.copy_reason == ("the source has changed again since: which of its columns were which cannot be told")


@pytest.mark.parametrize(
    "new",
    [
        Column("n", 4, INT4, default="random()"),
        Column("n", 4, INT4, nullable=False),
        Column("n", 4, PgType(20_002, "d", "public", "d", base=INT4)),
        Column("n", 4, INT4, generated=True),
    ],
)
def test_an_added_column_whose_values_are_not_known(new: Column) -> None:
    assert "column n" in (exact(table(ID, A, B, new)).copy_reason or "")
    # Not rewritten: then they are what the catalog says.
    known = exact(table(ID, A, B, new), CatalogEvidence(same_storage=True)).copy_reason
    assert (known is None) == (not new.generated)


def test_any_type_change_is_copied_unless_the_rows_are_known_to_be_the_same() -> None:
    short = replace(B, type=VARCHAR, typmod=9)
    previous = sent(table(ID, A, short), 1, 2, 3)
    found = resolved(message(ID, A, B), OLD, previous=previous)
    assert found.copy_reason == "column b changed from varchar(5) to text: how, the source does not tell"
    assert resolved(message(ID, A, B), OLD, CatalogEvidence(same_storage=True), previous).copy_reason is None
    narrower = resolved(message(ID, A, short), table(ID, A, short), CatalogEvidence(same_storage=True))
    assert (
        narrower.copy_reason == "column b changed from text to varchar(5): existing values cannot be converted in place"
    )


def test_a_table_that_was_rewritten_is_copied() -> None:
    new = table(ID, replace(A, name="z"), B)
    assert exact(new, CatalogEvidence(same_storage=False)).copy_reason == (
        "the source rewrote the table, and what existing rows are now no change tells"
    )


def test_labels_added_to_an_enum_need_no_copy_and_renamed_ones_do() -> None:
    mood = PgType(20_000, "mood", "public", "e", members=("sad", "ok"))
    previous = sent(table(ID, replace(A, type=mood)), 1, 2)
    for members, followed in ((("sad", "meh", "ok"), True), (("sad", "fine"), False)):
        new = replace(A, name="x", type=replace(mood, members=members))
        found = resolved(message(ID, new), table(ID, new), previous=previous)
        assert (found.copy_reason is None) == followed


def test_a_column_list_that_changed() -> None:
    fewer = resolved(message(ID, B), OLD)
    assert (fewer.schema, fewer.copy_reason) == (sent(OLD, 1, 3), None)
    more = resolved(message(ID, A, B), OLD, previous=sent(OLD, 1, 3))
    assert more.schema == PREVIOUS
    assert more.copy_reason == "column a is published anew: the values that existing rows have in it are not known"
    other = resolved(message(ID, A), OLD, previous=sent(OLD, 1, 3))
    assert (other.schema, other.copy_reason is None) == (sent(OLD, 1, 2), False)


def test_under_a_column_list_a_new_column_is_not_sent_but_known() -> None:
    new = table(ID, replace(A, name="z"), B, Column("n", 4, INT4))
    found = resolved(message(ID, replace(A, name="z")), new, previous=sent(OLD, 1, 2))
    assert (found.schema, found.copy_reason) == (sent(new, 1, 2), None)


def test_generated_columns_are_not_sent_unless_they_were() -> None:
    generated = Column("g", 4, INT4, generated=True)
    now = table(ID, A, replace(B, name="z"), generated)
    hidden = resolved(message(ID, A, replace(B, name="z")), now, previous=sent(table(ID, A, B, generated), 1, 2, 3))
    assert (hidden.schema, hidden.copy_reason) == (sent(now, 1, 2, 3), None)
    shown = resolved(
        message(ID, A, replace(B, name="z"), generated), now, previous=sent(table(ID, A, B, generated), 1, 2, 3, 4)
    )
    assert (shown.schema, shown.copy_reason) == (sent(now, 1, 2, 3, 4), None)
    plain = replace(generated, generated=False)
    found = resolved(
        message(ID, A, B, plain), table(ID, A, B, plain), previous=sent(table(ID, A, B, generated), 1, 2, 3)
    )
    assert found.copy_reason is not None


class TestAhead:
    """The catalog shows later changes than the message."""

    def test_names_that_were_changed_again(self) -> None:
        found = resolved(message(ID, replace(A, name="x"), B), table(ID, replace(A, name="y"), B))
        assert ([c.name for c in found.schema.columns], found.copy_reason) == (["id", "x", "b"], None)
        assert [c.attnum for c in found.schema.columns] == [1, 2, 3]

    def test_columns_that_were_not_there_yet(self) -> None:
        now = table(ID, A, replace(B, name="z"), Column("n", 4, INT4), Column("o", 5, INT4))
        found = resolved(message(ID, A, replace(B, name="z"), Column("n", 4, INT4)), now)
        assert ([c.attnum for c in found.schema.table.columns], found.copy_reason) == ([1, 2, 3, 4], None)
        assert found.natts == 4

    def test_a_column_that_was_still_there(self) -> None:
        relation = message(ID, replace(A, name="x"), B)
        certain = resolved(relation, table(ID, replace(A, name="x")), CatalogEvidence(3, 3))
        assert ([c.attnum for c in certain.schema.columns], certain.copy_reason) == ([1, 2, 3], None)
        # Another may have come and gone instead.
        assert resolved(relation, table(ID, replace(A, name="x"))).copy_reason is not None

    def test_a_column_that_came_and_went(self) -> None:
        found = resolved(message(ID, A, B, Column("n", 4, INT4)), OLD, CatalogEvidence(3, 4))
        assert [c.attnum for c in found.schema.columns] == [1, 2, 3, 4]
        assert found.copy_reason is not None

    def test_the_same_name_once_more(self) -> None:
        found = resolved(message(ID, A, B), table(ID, A, Column("b", 4, TEXT)))
        assert found.copy_reason is not None

    def test_a_null_that_is_not_allowed_any_more_may_still_come(self) -> None:
        found = resolved(message(ID, replace(A, name="x"), B), table(ID, replace(A, name="y", nullable=False), B))
        assert found.schema.columns[1].nullable

    def test_a_table_that_is_gone(self) -> None:
        assert resolved(message(ID, A, B), None).schema.table == OLD
        found = resolved(message(ID, A, replace(B, name="z")), None)
        assert found.copy_reason is not None
        assert [c.name for c in found.schema.columns] == ["id", "a", "z"]

    def test_types_that_nobody_knows_any_more(self) -> None:
        strange = replace(A, type=PgType(30_000, "gone"))
        found = resolved(message(ID, strange, replace(B, type=INT8)), None)
        assert [(c.type.oid, c.type.name) for c in found.schema.columns] == [
            (23, "int4"), (30_000, "type 30000"), (20, "int8"),
        ]  # fmt: skip


def test_the_key_is_what_the_message_flags() -> None:
    keyed = table(ID, replace(A, key_position=2), B, identity=(1, 2))
    swapped = table(replace(ID, key_position=2), replace(A, key_position=1), B, identity=(1, 2))
    assert resolved(message(ID, A, B, key=("id", "a")), swapped).schema.table == swapped
    # The catalog is ahead: the order in the key is not known.
    assert resolved(message(ID, A, B, key=("id", "a")), OLD).schema.table == keyed
    assert resolved(message(ID, A, B), swapped).schema.table == OLD
    keyless = table(replace(ID, key_position=None), A, B, identity=())
    assert resolved(message(ID, A, B, key=()), keyless).schema.table == keyless
    assert resolved(message(ID, A, B, key=()), OLD).schema.table == keyless


def test_a_deferrable_key_identifies_nothing() -> None:
    deferrable = table(ID, A, B, identity=())
    assert resolved(message(ID, A, B, key=()), deferrable).schema.table == deferrable


def test_other_replica_identities() -> None:
    for kind, identity in (
        (ReplicaIdentity.FULL, (1, 2, 3)),
        (ReplicaIdentity.NOTHING, ()),
        (ReplicaIdentity.INDEX, (2,)),
    ):
        new = table(ID, A, B, identity=identity, replica_identity=kind)
        names = tuple(c.name for c in new.columns if c.attnum in identity)
        found = resolved(message(ID, A, B, key=names, replica_identity=kind), new)
        assert (found.schema.table, found.copy_reason) == (new, None)
        # Before the catalog knew of it, too.
        assert resolved(message(ID, A, B), new).schema.table == OLD


def test_a_key_that_may_have_come_later() -> None:
    """Rows that were equal in what is the key by now were several."""
    plain, a = replace(ID, key_position=None), replace(A, key_position=1)
    for kind, identity in ((ReplicaIdentity.FULL, (1, 2, 3)), (ReplicaIdentity.INDEX, (1, 2))):
        told: dict[str, Any] = {"identity": identity, "replica_identity": kind}
        relation = message(ID, A, B, key=("id", "a", "b")[: len(identity)], replica_identity=kind)
        for before in (table(plain, A, B, **told), table(plain, a, B, **told)):
            found = resolved(relation, table(ID, A, B, **told), previous=sent(before, 1, 2, 3))
            assert "another primary key" in (found.copy_reason or "")
        # What was the key, and is none now, need not be one: whole rows, or the index, tell as much.
        found = resolved(relation, table(plain, A, B, **told), previous=sent(table(ID, A, B, **told), 1, 2, 3))
        assert (found.schema.table.key, found.copy_reason) == ((), None)
    # Here the message tells.
    found = resolved(message(ID, A, B), OLD, previous=sent(table(plain, A, B, identity=()), 1, 2, 3))
    assert (found.schema.table, found.copy_reason) == (OLD, None)


def test_partitions_that_came_or_went_bring_or_take_rows() -> None:
    assert "partition" in (resolved(message(ID, A, B), replace(OLD, leaves=(9,))).copy_reason or "")
