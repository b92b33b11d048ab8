"""What a destination's table becomes under each policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from headrace.errors import SchemaChangeRefused
from headrace.pgtypes.registry import builtin_type
from headrace.schema import Column, ReplicaIdentity, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema
from headrace.schema_change import ChangeKind
from headrace.schema_policy import SchemaPolicies, SchemaPolicy, Target, advanced
from headrace.spark.projection import projected

TYPES = {"int4": 23, "int8": 20, "text": 25}


def column(name: str, attnum: int, kind: str = "text", **options: object) -> Column:
    made = builtin_type(TYPES[kind])
    assert made is not None
    return replace(Column(name, attnum, made), **options)  # type: ignore[arg-type]


def schema(*columns: Column, name: str = "t") -> ReplicatedTableSchema:
    key = column("id", 1, "int4", key_position=1, nullable=False)
    table = TableSchema(1, TableName("public", name), (key, *columns), identity_attnums=(1,))
    return ReplicatedTableSchema(table, ReplicationMask.everything(table))


def policies(policy: str, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> SchemaPolicies:
    return SchemaPolicies(SchemaPolicy(policy), frozenset(map(ChangeKind, allow)), frozenset(map(ChangeKind, deny)))


A, B = column("a", 2), column("b", 3)


def target_of(how: SchemaPolicies, versions: Sequence[ReplicatedTableSchema]) -> Target:
    """After these versions of the source; the first is that of the copy."""
    target = Target.same(versions[0])
    for old, new in pairwise(versions):
        target = advanced(how, target, old, new)
    return target


def filled(how: SchemaPolicies, *versions: ReplicatedTableSchema) -> dict[str, int | None]:
    """The target's columns and the source column each is filled from."""
    target = target_of(how, versions)
    return {c.name: target.sources.get(c.attnum) for c in target.schema.columns}


@pytest.mark.parametrize(
    ("policy", "versions", "expected"),
    [
        ("evolve", [schema(A), schema(B)], {"id": 1, "b": 3}),
        ("lenient", [schema(A), schema(A, B)], {"id": 1, "a": 2, "b": 3}),
        ("lenient", [schema(A), schema(B)], {"id": 1, "a": None, "b": 3}),
        ("lenient", [schema(A), schema(column("z", 2))], {"id": 1, "a": None, "z": 2}),
        ("lenient", [schema(A), schema(column("z", 2)), schema(column("a", 2))], {"id": 1, "a": 2, "z": None}),
        ("lenient", [schema(A), schema(), schema(column("a", 5))], {"id": 1, "a": 5}),
        ("ignore", [schema(A), schema(A, B)], {"id": 1, "a": 2}),
        ("ignore", [schema(A), schema(B)], {"id": 1, "a": None}),
        ("ignore", [schema(A), schema(column("z", 2))], {"id": 1, "a": 2}),
    ],
)
def test_columns(policy: str, versions: list[ReplicatedTableSchema], expected: dict[str, int | None]) -> None:
    assert filled(policies(policy), *versions) == expected


def test_a_kind_that_is_allowed_is_followed() -> None:
    assert filled(policies("ignore", allow=("add_column",)), schema(A), schema(A, B)) == {"id": 1, "a": 2, "b": 3}
    assert filled(policies("lenient", allow=("drop_column",)), schema(A), schema()) == {"id": 1}


def test_a_kind_that_is_denied_stops_the_table() -> None:
    with pytest.raises(SchemaChangeRefused, match=r"public\.t changed: the policy refuses drop_column"):
        filled(policies("evolve", deny=("drop_column",)), schema(A, B), schema(B))
    assert filled(policies("evolve", deny=("drop_column",)), schema(A), schema(A, B)) == {"id": 1, "a": 2, "b": 3}


def test_error_refuses_everything_that_is_not_allowed() -> None:
    with pytest.raises(SchemaChangeRefused, match="add_column"):
        filled(policies("error"), schema(A), schema(A, B))
    assert filled(policies("error", allow=("add_column",)), schema(A), schema(A, B)) == {"id": 1, "a": 2, "b": 3}


def test_types_are_widened_never_narrowed() -> None:
    small, large = column("n", 2, "int4"), column("n", 2, "int8")
    widened = target_of(policies("lenient"), [schema(small), schema(large)]).schema.table.column("n")
    assert widened.type == large.type
    with pytest.raises(SchemaChangeRefused, match="column n changed its type"):
        target_of(policies("lenient"), [schema(large), schema(small)])
    with pytest.raises(SchemaChangeRefused, match="cannot be ignored"):
        target_of(policies("ignore"), [schema(small), schema(large)])


def test_a_table_is_renamed_unless_that_is_ignored() -> None:
    versions = [schema(A), schema(A, name="u")]
    assert target_of(policies("lenient"), versions).schema.table.name.name == "u"
    assert target_of(policies("ignore"), versions).schema.table.name.name == "t"


def test_an_identity_that_the_target_lacks_is_refused() -> None:
    moved = schema(A, B)
    moved = replace(moved, table=replace(moved.table, identity_attnums=(3,)))
    with pytest.raises(SchemaChangeRefused, match="identified by b"):
        target_of(policies("ignore"), [schema(A), moved])


@pytest.mark.parametrize(
    "versions",
    [[schema(A, B), schema(column("z", 2), B)], [schema(A, B), schema(B), schema(column("a", 5), B)]],
    ids=["renamed", "filled again"],
)
def test_a_column_by_which_rows_are_found_has_their_values(versions: list[ReplicatedTableSchema]) -> None:
    assert target_of(policies("lenient"), versions)
    full = [_without_key(version) for version in versions]
    with pytest.raises(SchemaChangeRefused, match="existing ones do not have its values there"):
        target_of(policies("lenient"), full)


def _without_key(version: ReplicatedTableSchema) -> ReplicatedTableSchema:
    columns = tuple(replace(column, key_position=None) for column in version.table.columns)
    attnums = tuple(column.attnum for column in columns)
    table = replace(version.table, columns=columns, replica_identity=ReplicaIdentity.FULL, identity_attnums=attnums)
    return replace(version, table=table)


def test_rows_are_projected() -> None:
    source = schema(column("z", 2), column("b", 3))
    target = target_of(policies("lenient", allow=()), [schema(A, B), source])
    row = pa.struct([("id", pa.int32()), ("z", pa.string()), ("b", pa.string())])
    changes = pa.record_batch(
        {
            "op": pa.array(["I", "U", "D"]),
            "unchanged": pa.array([None, [1, 2], None], pa.list_(pa.int32())),
            "row": pa.array([{"id": 1, "z": "z1", "b": "b1"}, {"id": 2, "z": None, "b": None}, None], row),
            "old": pa.array([None, None, {"id": 3, "z": None, "b": None}], row),
        }
    )
    found = projected(changes, source, target)
    names = [c.name for c in target.schema.columns]
    assert names == ["id", "a", "b", "z"]
    assert found["row"].to_pylist() == [
        {"id": 1, "a": None, "b": "b1", "z": "z1"},
        {"id": 2, "a": None, "b": None, "z": None},
        None,
    ]
    assert found["old"].to_pylist()[2]["id"] == 3
    assert found["unchanged"].to_pylist() == [None, [3, 2], None]


def test_what_is_unchanged_in_a_column_that_is_not_there_is_left_out() -> None:
    source = schema(A, B)
    target = target_of(policies("ignore"), [schema(A), source])
    row = pa.struct([("id", pa.int32()), ("a", pa.string()), ("b", pa.string())])
    one = {"id": 1, "a": None, "b": None}
    changes = pa.record_batch(
        {
            "op": pa.array(["U", "U"]),
            "unchanged": pa.array([[1, 2], [2]], pa.list_(pa.int32())),
            "row": pa.array([one, one], row),
            "old": pa.array([None, None], row),
        }
    )
    assert projected(changes, source, target)["unchanged"].to_pylist() == [[1], None]
