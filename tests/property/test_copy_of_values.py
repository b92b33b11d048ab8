"""A table of every type with every special value, read through `read_range`, against the server's own text of it."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from roundtrip_cases import ARRAY_CASES, CASES, SETUP, TEXT_ONLY_CASES

from copying import batches_of, published
from headrace.initial_copy.plan import plan_copy
from headrace.initial_copy.ranges import CopyPlan
from headrace.initial_copy.reader import CopyBatch, copy_columns

pytestmark = pytest.mark.matrix

ROWS = 40


def make_table(connection: psycopg.Connection[Any]) -> None:
    for statement in SETUP:
        connection.execute(statement)
    version = connection.info.server_version // 10_000
    cases = [case for case in [*CASES, *ARRAY_CASES, *TEXT_ONLY_CASES] if case.since <= version]
    names = [f"c{index}" for index in range(len(cases))]
    typed = ", ".join(f"{name} {case.type}" for name, case in zip(names, cases, strict=True))
    connection.execute(f"CREATE TABLE t (id int PRIMARY KEY, {typed})")
    for row in range(ROWS):
        given = [sql.Literal((*case.special, None)[row % (len(case.special) + 1)]) for case in cases]
        casts = [sql.SQL(f"{{}}::text::{case.type}").format(v) for case, v in zip(cases, given, strict=True)]
        connection.execute(sql.SQL("INSERT INTO t VALUES ({}, {})").format(row, sql.SQL(", ").join(casts)))


def server_texts(connection: psycopg.Connection[Any], name: str) -> pa.StringArray:
    connection.execute("SET intervalstyle = postgres; SET datestyle = ISO; SET bytea_output = hex")
    result = connection.pgconn.exec_params(f"SELECT {name} FROM t ORDER BY id".encode(), [], result_format=0)
    assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message
    texts = [result.get_value(row, 0) for row in range(result.ntuples)]
    return pa.array([None if text is None else text.decode() for text in texts], pa.string())


def rejected_of(batches: list[CopyBatch], name: str) -> list[tuple[int, str]]:
    found = []
    for batch in batches:
        if name in batch.rejected:
            rejected = batch.rejected[name]
            keys = batch.rows.column("id").take(rejected.positions).to_pylist()
            found += zip(keys, rejected.texts.to_pylist(), strict=True)
    return sorted(found)


def check(connection: psycopg.Connection[Any], plan: CopyPlan, batches: list[CopyBatch]) -> int:
    table = pa.Table.from_batches([batch.rows for batch in batches]).sort_by("id")
    assert table.num_rows == ROWS
    rejected = 0
    for name, conversion in copy_columns(plan.schema):
        expected = conversion.from_text(server_texts(connection, name))
        # Printed: Arrow finds NaN unequal to itself.
        assert str(table.column(name).to_pylist()) == str(expected.values.to_pylist())
        pairs = expected.rejected
        told = [] if pairs is None else list(zip(pairs.positions.to_pylist(), pairs.texts.to_pylist(), strict=True))
        assert rejected_of(batches, name) == told
        rejected += len(told)
    return rejected


def test_every_type_and_special_value(conninfo: str, connection: psycopg.Connection[Any]) -> None:
    make_table(connection)
    plan = plan_copy(connection, published(connection, "t"))
    for batch_bytes in (1, 8 << 20):
        batches = [batch for part in plan.ranges for batch in batches_of(conninfo, part, plan, batch_bytes=batch_bytes)]
        assert check(connection, plan, batches) > 20
    assert len(plan.schema.columns) > 60
