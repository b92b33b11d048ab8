"""Random walks of DDL on a real table: Relation messages and a later catalog give the version of any moment, or a copy.

The catalog is read after every step. Then any three moments are taken: the version known, the message, and a catalog
that may be further ahead than the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from headrace.events import Relation
from headrace.lsn import Lsn
from headrace.pgoutput import messages as m
from headrace.postgres.catalog import table_schema
from headrace.postgres.relation_resolution import CatalogEvidence, resolve_relation
from headrace.schema import (
    ReplicaIdentity,
    ReplicatedTableSchema,
    ReplicationMask,
    TableName,
    TableSchema,
    quote_identifier,
)
from headrace.schema_change import copy_reason, rows_rewritten
from headrace.testing import PostgresServer

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]

NAMES = ("a", "B", "c d", "größe 日本", "select", 'q"uote')
TYPES = ("int", "bigint", "text", "numeric(8,2)", "varchar(9)")
FOLLOWED = ("add", "drop", "rename", "key", "null", "set_default", "full")
"""Steps that are followed without a copy when the catalog is not ahead."""
KINDS = (
    *FOLLOWED, "add", "drop", "rename", "add_const", "add_volatile", "add_identity", "add_and_retype", "using",
    "retype", "retype", "drop_default",
)  # fmt: skip
# A key over NULLs; a default of an identity, or one that is not of the new type; a value that is not.
IMPOSSIBLE = (
    psycopg.errors.NotNullViolation,
    psycopg.errors.DatatypeMismatch,
    psycopg.errors.SyntaxError,
    psycopg.errors.InvalidTableDefinition,
    psycopg.DataError,
)
STEPS = st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 5), st.integers(0, 4))


@dataclass(frozen=True)
class Moment:
    """The table after a step; `row` is what a row that was there from the start shows, by attnum."""

    step: str
    table: TableSchema
    natts: int
    filenode: int
    row: dict[int, str | None]
    rewrite: int
    """Why the step rewrote the table, in Postgres's bits."""
    plain: bool
    """Whether the step had no USING clause."""

    @property
    def schema(self) -> ReplicatedTableSchema:
        return ReplicatedTableSchema(self.table, ReplicationMask.everything(self.table))

    @property
    def relation(self) -> m.Relation:
        columns = (
            m.RelationColumn(c.attnum in self.table.identity_attnums, c.name, c.type.oid, c.typmod)
            for c in self.table.columns
        )
        name = self.table.name
        return m.Relation(self.table.id, name.schema, name.name, self.table.replica_identity, tuple(columns))


def statement(table: TableSchema, kind: str, which: int, name: str, type_: str) -> str | None:
    """The step's DDL, None where it is not possible."""
    others = [c for c in table.columns if c.name != "id"]
    chosen = quote_identifier(others[which % len(others)].name) if others else None
    new = None if any(c.name == name for c in table.columns) else quote_identifier(name)
    adding = {
        "add": f"ADD {new} {type_}",
        "add_const": f"ADD {new} {type_} NOT NULL DEFAULT '7'",
        "add_volatile": f"ADD {new} text DEFAULT gen_random_uuid()",
        "add_identity": f"ADD {new} int GENERATED ALWAYS AS IDENTITY",
        "add_and_retype": f"ADD {new} {type_} DEFAULT '7', ALTER {chosen} TYPE {type_}",
    }
    key = f"ADD PRIMARY KEY (id, {chosen})" if chosen else "ADD PRIMARY KEY (id)"
    there = {
        "drop": f"DROP {chosen}",
        "retype": f"ALTER {chosen} TYPE {type_}",
        "using": f"ALTER {chosen} TYPE {type_} USING NULL",
        "null": f"ALTER {chosen} DROP NOT NULL",
        "set_default": f"ALTER {chosen} SET DEFAULT NULL",
        "drop_default": f"ALTER {chosen} DROP DEFAULT",
    }
    if kind in adding:
        return adding[kind] if new and chosen else None
    if kind == "rename":
        return f"RENAME {chosen} TO {new}" if chosen and new else None
    if kind == "full":
        return "REPLICA IDENTITY FULL" if which % 2 else "REPLICA IDENTITY DEFAULT"
    if kind == "key":
        return "DROP CONSTRAINT t_pkey" if table.key else key
    return there[kind] if chosen else None


def taken(connection: Connection, step: str, ddl: str = "") -> Moment:
    table = table_schema(connection, TableName("public", "t"))
    found = connection.execute(
        "WITH seen AS (DELETE FROM rewrites RETURNING reason)"
        " SELECT relnatts::int, pg_relation_filenode(oid)::int8, (SELECT coalesce(bit_or(reason), 0) FROM seen)"
        " FROM pg_class WHERE oid = %s",
        (table.id,),
    ).fetchone()
    assert found is not None
    result = connection.pgconn.exec_params(b"SELECT * FROM t WHERE id = 1", [], result_format=0)
    values = [result.get_value(0, place) for place in range(result.nfields)]
    row = {c.attnum: None if v is None else v.decode() for c, v in zip(table.columns, values, strict=True)}
    natts, filenode, rewrite = (int(str(number)) for number in found)
    return Moment(step, table, natts, filenode, row, rewrite, "USING" not in ddl)


def walk(connection: Connection, steps: list[tuple[str, int, int, int]]) -> list[Moment]:
    connection.execute('DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, a int, "B" text, gone int)')
    connection.execute("ALTER TABLE t DROP gone; INSERT INTO t VALUES (1, 2, 'x')")
    moments = [taken(connection, "create")]
    for kind, which, name, type_ in steps:
        ddl = statement(moments[-1].table, kind, which, NAMES[name], TYPES[type_])
        if ddl is None:
            continue
        try:
            connection.execute(f"ALTER TABLE t {ddl}")
        except IMPOSSIBLE:
            continue
        moments.append(taken(connection, kind, ddl))
    return moments


def columns(schema: ReplicatedTableSchema) -> list[tuple[int, str, int, int]]:
    return [(c.attnum, c.name, c.type.oid, c.typmod) for c in schema.columns]


def evidences(before: Moment, now: Moment) -> Iterator[CatalogEvidence]:
    yield CatalogEvidence()
    yield CatalogEvidence(before.natts)
    yield CatalogEvidence(before.natts, now.natts)
    yield CatalogEvidence(before.natts, now.natts, before.filenode == now.filenode)


def check(before: Moment, at: Moment, now: Moment) -> None:
    for evidence in evidences(before, now):
        resolved = resolve_relation(before.schema, at.relation, now.table, evidence)
        assert len(resolved.schema.columns) == len(at.table.columns)
        assert resolved.natts <= at.natts or resolved.copy_reason
        if resolved.copy_reason is not None:
            continue
        assert columns(resolved.schema) == columns(at.schema), evidence
        assert resolved.schema.table.replica_identity is at.table.replica_identity
        assert resolved.schema.table.identity_attnums == at.table.identity_attnums
        if evidence.same_storage is not None:
            check_row(before, at, resolved.schema)


def check_row(before: Moment, at: Moment, schema: ReplicatedTableSchema) -> None:
    """A row that was there before shows what it showed, and in added columns what their `missing` says."""
    for column in schema.columns:
        expected = before.row.get(column.attnum, column.missing)
        assert at.row[column.attnum] == expected, column.name


@pytest.fixture(scope="module")
def walked(postgres: PostgresServer) -> Iterator[Connection]:
    with postgres.database() as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("""
            CREATE TABLE rewrites (reason int);
            CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO rewrites VALUES (pg_event_trigger_table_rewrite_reason()); END';
            CREATE EVENT TRIGGER note ON table_rewrite EXECUTE FUNCTION note();
        """)
        yield connection


# Not shrunk: a walk is short as it is, and every try costs a table.
QUICK = (Phase.explicit, Phase.generate)
EXAMPLES: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
    "phases": QUICK,
}


@settings(max_examples=25, **EXAMPLES)
@given(st.lists(STEPS, min_size=1, max_size=8))
@example([("add_identity", 5, 2, 1), ("key", 4, 3, 2), ("key", 5, 5, 2), ("key", 4, 5, 0)])
def test_a_version_is_found_exactly_or_the_table_is_copied(
    walked: Connection, steps: list[tuple[str, int, int, int]]
) -> None:
    moments = walk(walked, steps)
    for before, at, now in combinations_with_replacement(moments, 3):
        check(before, at, now)


@settings(max_examples=25, **EXAMPLES)
@given(st.lists(STEPS, min_size=1, max_size=8))
def test_without_lag_a_simple_step_needs_no_copy(walked: Connection, steps: list[tuple[str, int, int, int]]) -> None:
    moments = walk(walked, steps)
    for before, at in pairwise(moments):
        same_storage = before.filenode == at.filenode
        for evidence in (CatalogEvidence(before.natts), CatalogEvidence(before.natts, at.natts, same_storage)):
            resolved = resolve_relation(before.schema, at.relation, at.table, evidence)
            if at.step in FOLLOWED:
                # Where all columns identify a row, the message does not tell which are the key's.
                rekeyed = at.table.replica_identity is ReplicaIdentity.FULL and at.table.key and at.step == "key"
                assert (resolved.copy_reason is not None) == bool(rekeyed)
                assert resolved.schema == at.schema
            # With a USING clause and the same type, only the storage tells.
            seen = evidence.same_storage is not None or columns(before.schema) != columns(at.schema)
            if at.step in ("add_volatile", "add_identity", "using") and seen:
                assert resolved.copy_reason is not None


@settings(max_examples=25, **EXAMPLES)
@given(st.lists(STEPS, min_size=1, max_size=8))
def test_with_what_the_trigger_tells_rows_are_followed_or_copied(
    walked: Connection, steps: list[tuple[str, int, int, int]]
) -> None:
    moments = walk(walked, steps)
    for before, at in pairwise(moments):
        old, new = before.schema, at.schema
        rewritten = rows_rewritten(old, new, rewrite=at.rewrite, plain=at.plain, tag="ALTER TABLE")
        reason = copy_reason(Relation(Lsn(1), Lsn(1), old, new, rewritten))
        if reason is None:
            check_row(before, at, new)
        if at.step in (*FOLLOWED, "add_const"):
            assert reason is None
