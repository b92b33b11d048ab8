"""pipeline.schema_following: what a Relation message comes to under each policy, where no event trigger tells more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import SchemaChangeRefused, TableSchemaChanged
from headrace.events import Relation
from headrace.lsn import Lsn
from headrace.pgoutput import messages as m
from headrace.pgoutput.schema_marks import RelationMark
from headrace.pipeline.schema_following import ColumnListChanged, Followed, SchemaFollower, Version
from headrace.postgres.source.message_key import MessageVerifier
from headrace.schema import (
    Column,
    PgType,
    ReplicaIdentity,
    ReplicatedTableSchema,
    ReplicationMask,
    TableName,
    TableSchema,
)
from headrace.schema_change import ChangeKind
from headrace.schema_policy import SchemaPolicies, SchemaPolicy, Target, advanced

INT4, TEXT = PgType(23, "int4"), PgType(25, "text")
ID = Column("id", 1, INT4, nullable=False, key_position=1)
A, B, C = Column("a", 2, INT4), Column("b", 3, TEXT), Column("c", 4, INT4)


def table(*columns: Column, name: str = "t", **more: object) -> TableSchema:
    known: dict[str, object] = {"identity_attnums": (1,), "natts": columns[-1].attnum, "storage": 5}
    return TableSchema(16_999, TableName("public", name), columns, **known | more)  # type: ignore[arg-type]


def sent(schema: TableSchema) -> ReplicatedTableSchema:
    return ReplicatedTableSchema(schema, ReplicationMask.everything(schema))


def mark(*columns: Column, **more: object) -> RelationMark:
    described = tuple(m.RelationColumn(c is ID, c.name, c.type.oid, c.typmod) for c in columns)
    known: dict[str, object] = {"namespace": "public", "name": "t", "replica_identity": ReplicaIdentity.DEFAULT}
    relation = m.Relation(relation_id=16_999, columns=described, **known | more)  # type: ignore[arg-type]
    return RelationMark(Lsn(10), Lsn(20), 0, b"", relation)


def policies(policy: str, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> SchemaPolicies:
    return SchemaPolicies(SchemaPolicy(policy), frozenset(map(ChangeKind, allow)), frozenset(map(ChangeKind, deny)))


def of_current_rows(relation: Relation) -> bool:
    return not relation.rewritten


VERIFIER = MessageVerifier(lambda: None)
BEFORE = Version(sent(table(ID, A, B)), Target.same(sent(table(ID, A, B))))


def followed(
    how: SchemaPolicies,
    seen: RelationMark,
    now: TableSchema,
    *,
    log: bool = False,
    before: Version = BEFORE,
) -> Followed | None:
    follows = (lambda _: True) if log else of_current_rows
    return SchemaFollower(lambda _: now, follows, lambda _: how, verifier=VERIFIER).of_relation(before, before, seen)


# Column b was renamed, then a and b were dropped and c was added: by what is known, z may be any of the three.
UNKNOWN = mark(ID, replace(B, name="z")), table(ID, C)


def test_what_is_not_known_is_copied_where_anything_may_change() -> None:
    with pytest.raises(ColumnListChanged) as raised:
        followed(policies("evolve"), *UNKNOWN)
    assert "cannot be told" in str(raised.value.detail)


@pytest.mark.parametrize("how", [policies("lenient"), policies("ignore"), policies("evolve", deny=("add_column",))])
def test_what_is_not_known_stops_a_table_that_does_not_follow_everything(how: SchemaPolicies) -> None:
    with pytest.raises(SchemaChangeRefused) as raised:
        followed(how, *UNKNOWN)
    assert "cannot be told" in str(raised.value)
    assert "resync" in str(raised.value.hint)


def test_what_is_not_known_stops_a_log() -> None:
    with pytest.raises(SchemaChangeRefused):
        followed(policies("evolve"), *UNKNOWN, log=True)


def test_a_key_that_is_not_known_stops_a_table_that_keeps_its_columns() -> None:
    full: dict[str, object] = {"replica_identity": ReplicaIdentity.FULL, "identity_attnums": (1, 2, 3)}
    before = sent(table(ID, A, B, **full))
    keyed = replace(ID, key_position=None), replace(A, key_position=1), replace(B, name="z")
    seen = mark(ID, A, replace(B, name="z"), replica_identity=ReplicaIdentity.FULL)
    flagged = tuple(replace(column, key=True) for column in seen.relation.columns)
    seen = replace(seen, relation=replace(seen.relation, columns=flagged))
    with pytest.raises(SchemaChangeRefused, match="another primary key"):
        followed(policies("lenient"), seen, table(*keyed, **full), before=Version(before, Target.same(before)))


def test_a_former_name_that_comes_behind_the_one_in_force_is_not_gone_back_to() -> None:
    seen = mark(ID, A, B, namespace="former")
    assert followed(policies("evolve"), seen, table(ID, A, B)) is None
    # What else it tells counts all the same.
    more = followed(policies("evolve"), mark(ID, A, B, C, namespace="former"), table(ID, A, B, C))
    assert more is not None
    assert more.version.schema.table.name == TableName("public", "t")
    assert [column.name for column in more.version.schema.columns] == ["id", "a", "b", "c"]
    # A name that is not in the catalog as known is followed.
    renamed = followed(policies("evolve"), mark(ID, A, B, name="u"), table(ID, A, B, name="u"))
    assert renamed is not None
    assert renamed.version.schema.table.name == TableName("public", "u")


RETYPED = mark(ID, A, replace(B, type=INT4)), table(ID, A, replace(B, type=INT4))
FILLED = mark(ID, A, B, C), table(ID, A, B, replace(C, default="random()"), storage=6)
PARTITIONED = Version(sent(table(ID, A, B, leaves=(7,))), Target.same(sent(table(ID, A, B, leaves=(7,)))))
ATTACHED = mark(ID, A, replace(B, name="z")), table(ID, A, replace(B, name="z"), leaves=(7, 8))


@pytest.mark.parametrize("policy", ["lenient", "ignore"])
def test_what_is_allowed_is_copied_where_it_would_be_under_evolve(policy: str) -> None:
    with pytest.raises(TableSchemaChanged):
        followed(policies(policy, allow=("change_type",)), *RETYPED)
    with pytest.raises(TableSchemaChanged):
        followed(policies(policy, allow=("add_column",)), *FILLED)
    with pytest.raises(TableSchemaChanged):
        followed(policies(policy, allow=("change_partitions", "rename_column")), *ATTACHED, before=PARTITIONED)


def test_what_is_not_allowed_is_not_copied() -> None:
    with pytest.raises(SchemaChangeRefused):
        followed(policies("lenient"), *RETYPED)
    for how in (policies("lenient"), policies("lenient", allow=("change_type",))):
        result = followed(how, *FILLED)
        assert result is not None
        assert result.step is not None
        assert not result.step.rewritten


def test_a_copy_that_would_lose_what_was_kept_stops_the_table() -> None:
    how = policies("lenient", allow=("change_type",))
    old, new = sent(table(ID, A, B, C)), sent(table(ID, A, B, natts=4))
    before = Version(new, advanced(how, Target.same(old), old, new))
    with pytest.raises(SchemaChangeRefused, match="lose the columns"):
        followed(how, *RETYPED, before=before)
